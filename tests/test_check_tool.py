"""`make check` finds the tests of what was changed."""

from __future__ import annotations

from tests.tools import ROOT
from tools import check


def test_a_module_has_the_tests_that_are_called_after_it_or_import_it() -> None:
    found = check.tests_of([ROOT / "graphc" / "passes" / "fuse" / "partition.py"])
    names = [path.name for path in found]
    assert names[0] == "test_partition.py"
    importing = ROOT / "tests" / "kernels" / "test_many_outputs.py"
    assert importing in check.tests_of([ROOT / "kernels" / "program" / "inplace.py"])


def test_a_changed_test_comes_first_and_headers_have_the_tests_of_their_name() -> None:
    test = ROOT / "tests" / "test_table_rows.py"
    assert check.tests_of([test, ROOT / "graphc" / "optim" / "rows.py"])[0] == test
    found = check.tests_of([ROOT / "kernels" / "cpu" / "prefix" / "prefix.h"])
    assert found[0].name == "test_prefix.py"
    found = check.tests_of([ROOT / "kernels" / "cuda" / "contract" / "cluster_sums.cuh"])
    assert ROOT / "tests" / "kernels" / "test_cuda_clusters.py" in found


def test_documents_have_no_tests_of_their_own() -> None:
    assert check.tests_of([ROOT / "LICENSE"]) == []
