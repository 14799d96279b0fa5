"""``starc``: the commands. Results go to standard output, everything else to standard error.

Exit codes: 0 done, 1 the input is wrong, 2 wrong usage, 3 a check failed, 70 a bug in starc.
Imports of the compiler happen inside the commands, so that help and usage errors come at once.
"""

from __future__ import annotations

import gc
import sys

EXIT_INPUT = 1
EXIT_USAGE = 2
EXIT_BUG = 70
EXIT_INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the command line."""
    # Looking for cycles among the many objects of a program takes a sixth of a compilation.
    gc.set_threshold(200_000, 20, 20)
    try:
        code = run(arguments)
    except KeyboardInterrupt:
        # Wherever it comes from, also out of the imports.
        code = _fail("interrupted", EXIT_INTERRUPTED)
    sys.exit(code)


def run(arguments: list[str] | None = None) -> int:
    """Runs a command and returns its exit code."""
    from starc.command_line.console import emit, open_streams

    if not open_streams():
        return _fail("starc: error: standard output is closed", EXIT_INPUT)
    from starc.command_line.arguments import parse
    from starc.diagnostics import InputError, UsageError, render_error

    options = parse(arguments)
    command = options.command
    try:
        from starc.command_line import commands

        if options.version:
            from importlib.metadata import version

            emit(f"starc {version('starc')}")
            return 0
        return commands.COMMANDS[command](options)
    except UsageError as error:
        return _fail(f"starc {command}: error: {error}", EXIT_USAGE)
    except InputError as error:
        by_option = all((item.key or "").startswith("--") for item in error.diagnostics)
        return _fail(render_error(error), EXIT_USAGE if by_option else EXIT_INPUT)
    except OSError as error:
        return _fail(_describe_os_error(error), EXIT_INPUT)
    except Exception as error:
        return _fail(_describe_bug(error, arguments), EXIT_BUG)


def _describe_os_error(error: OSError) -> str:
    place = f"{error.filename}: " if error.filename is not None else ""
    return f"{place}error: {error.strerror or error}"


def _describe_bug(error: Exception, arguments: list[str] | None) -> str:
    """A short message, where the evidence lies, and the command that repeats the failure."""
    from starc.passes.manager import CompilerBug, record_bug

    if not isinstance(error, CompilerBug):
        import shlex

        words = sys.argv[1:] if arguments is None else arguments
        error = record_bug("starc", {}, "starc " + shlex.join(words), error)
    return (
        f"starc: bug in {error.stage}: {error}\n"
        f"  evidence: {error.directory}\n"
        f"  repeat with: {error.command}"
    )


def _fail(message: str, code: int) -> int:
    print(message, file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
