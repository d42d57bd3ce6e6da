"""The notebooks of labs: they are what Jupyter reads, and their cells run one after the other, in quick form."""

import ast
import json
import os
import pathlib
import shutil
import tempfile
import unittest

LABS = pathlib.Path(__file__).resolve().parents[2] / "examples" / "labs"
NOTEBOOKS = sorted(LABS.glob("*/*.ipynb"))


def read(path):
    """The sources of the code cells."""
    book = json.loads(path.read_text())
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5), path
    assert len({c["id"] for c in book["cells"]}) == len(book["cells"]), path
    for cell in book["cells"]:
        assert cell["cell_type"] in ("markdown", "code") and cell["metadata"] == {}, cell
        assert all(isinstance(line, str) for line in cell["source"]), cell
    code = [c for c in book["cells"] if c["cell_type"] == "code"]
    assert all(c["outputs"] == [] and c["execution_count"] is None for c in code), f"{path}: clear its outputs"
    return ["".join(c["source"]) for c in code]


def run(cell, names):
    """Runs a cell, and gives the value of its last expression, as Jupyter shows it."""
    tree = ast.parse(cell)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<cell>", "exec"), names)
    return eval(compile(ast.Expression(last.value), "<cell>", "eval"), names) if last else None


class Notebooks(unittest.TestCase):
    def test_they_are_well_formed(self):
        self.assertGreaterEqual(len(NOTEBOOKS), 2)
        for path in NOTEBOOKS:
            for cell in read(path):
                compile(cell, str(path), "exec")

    def test_their_cells_run(self):
        try:
            import pandas  # noqa: F401
        except ImportError:
            self.skipTest("pandas is not installed")
        before = os.getcwd()
        for path in NOTEBOOKS:
            with self.subTest(path.parent.name), tempfile.TemporaryDirectory() as folder:
                os.chdir(shutil.copytree(path.parent, pathlib.Path(folder) / "lab"))
                try:
                    names = {}
                    for cell in read(path):
                        shown = run(cell.replace("QUICK = False", "QUICK = True"), names)
                        if shown is not None:
                            self.assertRegex(shown._repr_html_(), "<svg|<table")
                    self.assertTrue(names["QUICK"])
                finally:
                    os.chdir(before)


if __name__ == "__main__":
    unittest.main()
