"""Which layer kind a report is about."""

from pathlib import Path

from starc.api import CompileOptions, compile_model
from starc.report.build import most_frequent

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_all_plans_report_the_same_of_equally_frequent_kinds() -> None:
    """Layers over a window and over everything alternate: the ones that attend to more count,
    whatever a plan makes of their kernels."""
    for strategy in ("naive", "hierarchical", "starscream"):
        program = compile_model(
            CompileOptions(
                EXAMPLES / "gpt-oss-120b.sa", strategy=strategy, batch=1, context=128 * 1024
            )
        ).packed
        counts = {layer.name: layer.count for layer in program.layers}
        assert counts["local"] == counts["global"]
        assert most_frequent(program).name == "global"


def test_a_model_of_one_layer_reports_it_and_not_its_head() -> None:
    program = compile_model(CompileOptions(EXAMPLES / "tiny.sa", gpus=1)).packed
    assert most_frequent(program).name not in ("embedding", "head")
