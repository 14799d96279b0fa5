"""Attention launches: workgroups that share keys, keys that go around a ring, engines of a cube."""
