"""Writes the reference pages from the docstrings of the code: ``python docs/generate.py``.

Of ``starscream.md`` and ``ahbm.md`` it writes the blocks of code alone, from what the passes print,
and of ``simulator.md`` the tables of numbers, from the machine files. A test compares the committed
pages with what this script would write.
"""

from __future__ import annotations

import importlib
import inspect
import io
import re
import shlex
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path

from starc.cli import run
from starc.command_line.arguments import build_parser
from starc.command_line.explain import DIALECTS, pass_options
from starc.passes.pipeline import PASSES, STRATEGIES, PassEntry, load_pass
from starc.report.glossary import GLOSSARY
from starc.report.remarks import REMARKS
from starc.targets.file_keys import KINDS
from starc.targets.machine_file import Number, products
from starc.targets.names import numbers
from starc.targets.names import title as title_of_product
from starc.universe import load_dialect

DOCS = Path(__file__).parent
NOTE = "<!-- Written by docs/generate.py from the code: change the code, then run `make docs`. -->"


def markdown(docstring: str | None) -> str:
    """A docstring as Markdown: indented blocks become code blocks."""
    lines: list[str] = []
    fenced = indented = False

    def end_block() -> None:
        while lines and not lines[-1]:
            lines.pop()
        lines.extend(("```", ""))

    for line in inspect.cleandoc(docstring or "").split("\n"):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced:
            code = line.startswith("    ")
            if code and not indented:
                lines.append("```text")
            elif indented and line and not code:
                end_block()
            indented = code or (indented and not line)
            if not indented:
                # Double backticks and colons are how docstrings write what Markdown writes singly.
                line = re.sub("``", "`", re.sub(r"::$", ":", line))
        lines.append(line.removeprefix("    ") if indented else line)
    if indented:
        end_block()
    return "\n".join(lines).strip()


def passes_page() -> str:
    """The index of the passes, in order, with the strategies that run them."""
    names = list(STRATEGIES)
    parts = [
        NOTE,
        "# Passes",
        "",
        "In the order in which `starc compile` runs them; each has a page",
    ]
    parts[-1] += " with its contract and an example that a test runs."
    parts += ["", f"| pass | level | {' | '.join(names)} | |", "|---" * (3 + len(names)) + "|"]
    for entry in PASSES:
        marks = ("x" if entry.name in _passes_of(name) else "" for name in names)
        link = f"[{entry.name}](passes/{entry.name}.md)"
        parts.append(f"| {link} | {entry.level} | {' | '.join(marks)} | {entry.summary} |")
    parts += ["", "Strategies:", ""]
    parts += [f"- `{name}`: {STRATEGIES[name].summary}" for name in names]
    return "\n".join(parts) + "\n"


def _passes_of(strategy: str) -> set[str]:
    return {name for name, _ in STRATEGIES[strategy].passes}


def pass_page(entry: PassEntry) -> str:
    """A pass: its level, what it needs, its docstring and its options."""
    kind = load_pass(entry.name)
    parts = [NOTE, f"# {entry.name}", "", f"Output level: {entry.level}."]
    if entry.needs:
        parts[-1] += f" Needs what {', '.join(f'`{name}`' for name in entry.needs)} established."
    running = [f"`{name}`" for name in STRATEGIES if entry.name in _passes_of(name)]
    parts[-1] += f" Run by: {', '.join(running)}." if running else " Run on demand (`--enable`)."
    parts += ["", markdown(kind.__doc__)]
    options = list(pass_options(kind))
    if options:
        parts += ["", "| option | type | default |", "|---|---|---|"]
        parts += [
            f"| `{name}` | `{type_text.replace('|', chr(92) + '|')}` | `{default}` |"
            for name, type_text, default in options
        ]
    return "\n".join(parts) + "\n"


def dialects_page() -> str:
    """Every dialect with its operations, attributes and types."""
    parts = [NOTE, "# Dialects", "", "See [ir.md](ir.md) for how they follow each other."]
    for name in DIALECTS:
        module = importlib.import_module(f"starc.dialects.{name}")
        dialect = load_dialect(name)
        parts += ["", f"## {name}", "", markdown(module.__doc__)]
        for operation in dialect.operations:
            parts += [
                "",
                f"### `{operation.name}`",
                "",
                markdown(operation.__dict__.get("__doc__")),
            ]
        for attribute in dialect.attributes:
            text = markdown(attribute.__dict__.get("__doc__"))
            parts += ["", f"### `{attribute.name}` (attribute or type)", "", text]
    return "\n".join(parts) + "\n"


def glossary_page() -> str:
    """Every line of the report, and terms of the passes."""
    parts = [
        NOTE,
        "# Glossary",
        "",
        "What `starc explain NAME` says about lines of the report and terms of the passes.",
    ]
    for name, text in sorted(GLOSSARY.items()):
        parts += ["", f"**{name}**: {text}"]
    parts += [
        "",
        "## Remarks",
        "",
        "What `--remarks` prints, by the identifier at the end of a line.",
    ]
    for name, text in sorted(REMARKS.items()):
        parts += ["", f"**{name}**: {text}"]
    return "\n".join(parts) + "\n"


def options_page() -> str:
    """Every command with its options, by topic."""
    parts = [NOTE, "# Commands and options"]
    for name, parser in build_parser()[1].items():
        description = (parser.description or "").replace("\n", " ")
        parts += ["", f"## starc {name}", "", description]
        for title, actions in parser.topics():
            parts += ["", f"| {title} | |", "|---|---|"]
            for action in actions:
                names = ", ".join(f"`{option}`" for option in action.option_strings)
                value = action.metavar or " or ".join(action.choices or ())
                shown = f"{names} `{value}`" if names and value else names or f"`{value}`"
                text = (action.help or "") % {"default": action.default}
                parts.append(f"| {shown} | {text} |")
        if parser.epilog:
            parts += ["", "```text", parser.epilog.rstrip(), "```"]
    return "\n".join(parts) + "\n"


BLOCK = re.compile(r"^```(\w+) ([a-z]+)=(.*)\n(?:.*\n)*?```$", re.MULTILINE)
WALKTHROUGH = ("compile", str(DOCS.parent / "examples" / "walkthrough.sa"), "--mesh=gpu=2,xcd=4")
ELISIONS = (
    (r", global = \[[^]]*\]", ""),
    (r"#sharding\.of<@node, ", "… "),
    (r"(= nn\.\w+ [^:]*?) \{[a-z][^}]*\} : ", r"\1 {…} : "),
    (r"(= (?:nn|sharding|collective)\..*?) : .* -> ", r"\1 : … -> "),
    (r"(kernel\.launch @\S+ \w+) \(.*\) -> \(.*\) (?:attributes \{.*\} )?\{", r"\1 … {"),
    (r"(%\w+ = @[\w.]+) : tensor<[^>]*>>", r"\1"),
    (r"(kernel\.yield [^:]*) : .*", r"\1"),
)
"""What a line of an excerpt leaves out: patterns and what stands in their place, in order. The page
says so."""
SWEEP = (
    *("compile", str(DOCS.parent / "examples" / "ahbm-attention-decode.sa"), "--target=ahbm"),
    *("--mesh=sip=1,group=1,cube=1,pe=1", "--set=heads=8", "--set=kv_heads=1"),
    *("--context=4096", "--enable=tile-kernels{softmax=fused}"),
)
SWEEP_ELISIONS = (
    (r" attributes \{stage = (\d) : i64\} \{", r" {  // stage \1"),
    (r" : !isa\.(tile|semaphore).*", ""),
    (r"( isa\.\w+ .*?) attributes \{[^}]*\}", r"\1"),
    (r" params \[[^]]*\]", ""),
    (r" \{stage = (\d) : i64\}", r"  // stage \1"),
    (r"@attention_only\.(\w+_cache|q\b|result)", r"@\1"),
)
"""The same of the page about AHBM."""


def starscream_page() -> str:
    """The page as it is, with its blocks written anew: ```` ```mlir after=PASS pick=REGEX ````
    shows the lines of the IR after a pass that match (``after=PASS of=SYMBOL``: of one operation),
    ``remarks=PASS pick=REGEX`` remarks, and ``run=COMMAND`` what a command prints."""
    text = (DOCS / "starscream.md").read_text(encoding="utf-8")
    return BLOCK.sub(lambda match: _block(match[1], match[2], match[3]), text)


def ahbm_page() -> str:
    """The page as it is, with its blocks written anew in the same way: ``after=PASS`` shows a sweep
    of decode attention on one PE. What ``ahbm_study.py`` writes stays."""
    text = (DOCS / "ahbm.md").read_text(encoding="utf-8")
    return BLOCK.sub(
        lambda match: _block(match[1], match[2], match[3], SWEEP, SWEEP_ELISIONS), text
    )


def _block(
    language: str,
    kind: str,
    argument: str,
    command: tuple[str, ...] = WALKTHROUGH,
    elisions: tuple[tuple[str, str], ...] = ELISIONS,
) -> str:
    name, _, pick = argument.partition(" pick=")
    name, _, inside = name.partition(" of=")
    if kind == "run":
        lines = _printed(tuple(shlex.split(name)))[0].rstrip().split("\n")
        lines = [line for line in lines if re.search(pick, line)]
    else:
        files, remarks = _walkthrough(command)
        source = remarks
        if kind == "after":
            source = _inside(_shortened(files[name], elisions), inside)
        lines = [line for line in source if re.search(pick, line)]
        if kind == "remarks":
            found = (re.fullmatch(r"(.*) \[([a-z-]+): [a-z-]+\]", line) for line in lines)
            lines = [
                wrapped
                for match in found
                if match is not None and match[2] == name
                for wrapped in textwrap.wrap(
                    match[1], 96, subsequent_indent="    ", break_on_hyphens=False
                )
            ]
        lines = textwrap.dedent("\n".join(lines)).split("\n")
    if lines in ([], [""]):
        raise ValueError(f"nothing is shown by {kind}={argument}")
    return "\n".join((f"```{language} {kind}={argument}", *lines, "```"))


def _inside(lines: list[str], symbol: str) -> list[str]:
    """The lines of the operation with a region that names ``symbol``; all if it is empty."""
    if not symbol:
        return lines
    first = next(i for i, line in enumerate(lines) if f"{symbol} " in line and line[-1] == "{")
    end = lines[first][: len(lines[first]) - len(lines[first].lstrip())] + "}"
    return lines[first : lines.index(end, first) + 1]


def _shortened(text: str, elisions: tuple[tuple[str, str], ...]) -> list[str]:
    for pattern, replacement in elisions:
        text = re.sub(pattern, replacement, text)
    return text.split("\n")


TABLE = re.compile(r"<!-- table: (\w+) -->\n.*?<!-- end -->", re.DOTALL)


def simulator_page() -> str:
    """The page as it is, with the tables between ``<!-- table: NAME -->`` and ``<!-- end -->``
    written anew from the machine files."""
    text = (DOCS / "simulator.md").read_text(encoding="utf-8")
    tables = {"kinds": _kinds_table, "calibrated": _calibrated_table}
    return TABLE.sub(
        lambda match: f"<!-- table: {match[1]} -->\n{tables[match[1]]()}\n<!-- end -->", text
    )


def numbers_page() -> str:
    """Every number of every product that is not the vendor's: by kind, with range and reason."""
    parts = [
        NOTE,
        "# Numbers of the machines",
        "",
        "What [simulator.md](simulator.md) counts, from `starc/targets/*.toml`. "
        "`starc targets show NAME` prints all numbers of one machine, those of the vendor too.",
        "",
        _kinds_table(),
        "",
        "## Calibrated",
        "",
        _calibrated_table(),
    ]
    for product in products():
        found = [number for number in numbers(product) if number.kind == "assumed"]
        carried = [number for number in found if _is_carried(number)]
        parts += ["", f"## Assumed: {product}", "", f"{title_of_product(product)}."]
        if carried:
            base = carried[0].source.split(":")[0].removeprefix("carried over from ")
            names = ", ".join(f"`{number.key}`" for number in carried)
            parts += ["", f"As in {base}, where nothing else is known: {names}."]
        rows = [number for number in found if not _is_carried(number)]
        if rows:
            parts += ["", "| number | value | from | to | unit | |", "|---|---|---|---|---|---|"]
            parts += [
                f"| `{row.key}` | {_figure(row.value)} | {_figure(row.low)} | {_figure(row.high)} "
                f"| {row.unit} | {_cell(row.note or row.source)} |"
                for row in rows
            ]
    return "\n".join(parts) + "\n"


def _kinds_table() -> str:
    """How many numbers of each kind every product has."""
    lines = [f"| product | {' | '.join(KINDS)} | of the assumed, carried over |"]
    lines.append("|---" * (len(KINDS) + 2) + "|")
    for product in products():
        found = numbers(product)
        counts = [sum(number.kind == kind for number in found) for kind in KINDS]
        carried = sum(_is_carried(number) for number in found)
        lines.append(f"| {product} | {' | '.join(map(str, counts))} | {carried} |")
    return "\n".join(lines)


def _calibrated_table() -> str:
    """Every calibrated number with the rows that it was fitted on."""
    lines = ["| product | number | value | unit | fitted on |", "|---|---|---|---|---|"]
    lines += [
        f"| {product} | `{row.key}` | {_figure(row.value)} | {row.unit} | {_cell(row.fitted_on)} |"
        for product in products()
        for row in numbers(product)
        if row.kind == "calibrated"
    ]
    return "\n".join(lines)


def _is_carried(number: Number) -> bool:
    """Whether a machine file does not say a number and has it from its base."""
    return (
        number.kind == "assumed"
        and ": " in number.source
        and number.source.startswith("carried over from ")
    )


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


@cache
def _walkthrough(options: tuple[str, ...]) -> tuple[dict[str, str], list[str]]:
    """The IR after every pass of an example, and the remarks. A pass that runs several times has
    its number behind its name from the second time on."""
    files: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as directory:
        command = (*options, "--strategy=starscream", "--compile-to=isa", "--remarks")
        _, errors = _printed((*command, f"--print-ir-tree-dir={directory}"))
        for path in sorted(Path(directory).glob("*.mlir")):
            name = path.stem[3:]
            count = sum(other.split("#")[0] == name for other in files)
            files[f"{name}#{count + 1}" if count else name] = path.read_text(encoding="utf-8")
    remarks = [re.sub(r"^\S*/", "", line) for line in errors.split("\n")]
    return files, remarks


@cache
def _printed(command: tuple[str, ...]) -> tuple[str, str]:
    """What a command of ``starc`` prints: results, and the rest."""
    out, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(errors):
        run([str(DOCS.parent / w) if w.startswith("examples/") else w for w in command])
    return out.getvalue(), errors.getvalue()


PAGES: dict[str, Callable[[], str]] = {
    "options.md": options_page,
    "passes.md": passes_page,
    "dialects.md": dialects_page,
    "glossary.md": glossary_page,
    "starscream.md": starscream_page,
    "ahbm.md": ahbm_page,
    "simulator.md": simulator_page,
    "numbers.md": numbers_page,
}


def pages() -> Iterator[tuple[Path, str]]:
    """(path, text) of every generated page."""
    for name, make in PAGES.items():
        yield DOCS / name, make()
    for entry in PASSES:
        yield DOCS / "passes" / f"{entry.name}.md", pass_page(entry)


if __name__ == "__main__":
    (DOCS / "passes").mkdir(exist_ok=True)
    written = {page for page, _ in pages()}
    for page in set((DOCS / "passes").glob("*.md")) - written:
        page.unlink()
    for page, text in pages():
        page.write_text(text, encoding="utf-8")
        print(f"wrote {page}")
