"""starc: compiles transformer layers for partitioned chiplet accelerators and simulates them.

``starc.dialects`` and ``starc.passes`` live in the folders ``dialects`` and ``passes`` at the top
of the repository; an installation maps them into this package.
"""

from pkgutil import extend_path

# A checkout that is the working directory shadows the installed package, which alone has the two
# mapped folders: look in every place on the path.
__path__ = extend_path(__path__, __name__)
