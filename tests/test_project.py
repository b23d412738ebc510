"""What holds for the project as a whole: which way imports point, and that the README tells the truth."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

import chainrule

ROOT = Path(__file__).parents[1]
BELOW = {  # what each folder may import of ours
    "autograd": {"autograd"},
    "nn": {"autograd", "nn"},
    "models": {"autograd", "nn", "models"},
    "viz": {"autograd", "nn", "models", "viz"},
}


def imports_of(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)


@pytest.mark.parametrize("folder", BELOW)
def test_imports_point_one_way(folder):
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    for path in files:
        for module, names in imports_of(path):
            if module == "chainrule":
                assert set(names) <= BELOW[folder], path
            elif module.startswith("chainrule."):
                assert module.split(".")[1] in BELOW[folder], path


def test_the_engine_needs_numpy_alone():
    import sys

    for path in sorted((ROOT / "autograd").rglob("*.py")):
        for module, _ in imports_of(path):
            assert module.split(".")[0] in sys.stdlib_module_names | {"numpy", "chainrule"}, path


def test_the_version_is_said_once():
    with open(ROOT / "pyproject.toml", "rb") as file:
        assert tomllib.load(file)["project"]["version"] == chainrule.__version__


def test_every_package_is_packaged():
    with open(ROOT / "pyproject.toml", "rb") as file:
        listed = set(tomllib.load(file)["tool"]["setuptools"]["packages"])
    folders = {"chainrule"} | {
        "chainrule." + ".".join(path.parent.relative_to(ROOT).parts)
        for name in BELOW
        for path in (ROOT / name).rglob("__init__.py")
    }
    assert listed == folders


def test_public_names_are_there():
    for name in chainrule.__all__:
        assert getattr(chainrule, name).__doc__


@pytest.mark.parametrize("readme", ["README.md", "README.zh-CN.md"])
def test_the_readmes_examples_run(readme, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```(python|py)\n(.*?)```", (ROOT / readme).read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    variables = {"__name__": "readme"}  # as a module would have
    for kind, block in blocks:
        if kind == "py":  # it needs a package more
            if "minilm" in block:  # of 90 megabytes
                continue
            pytest.importorskip("safetensors")
        exec(compile(block, readme, "exec"), variables)


@pytest.mark.parametrize("readme", ["README.md", "README.zh-CN.md"])
def test_the_readmes_show_the_account_as_it_is(readme):
    from chainrule import record_sources, trace

    shown = re.search(r"```\n(∂loss/∂WQ.*?)```", (ROOT / readme).read_text(encoding="utf-8"), re.DOTALL)
    assert shown
    with record_sources():
        loss = chainrule.models.WorkedExample()()
    t = trace(loss, "WQ[1,0]")
    t.check()
    account = _without_rounding(str(t))
    for line in shown.group(1).splitlines():
        if line.strip() not in ("", "⋮", "…"):
            assert _without_rounding(line) in account, line


def _without_rounding(text):
    """The last digits of these differ between machines."""
    return re.sub(r"(residual|±) \S+|(0\.1335623199591)\d+|(2\.54192805667701?)\d*", r"\1\2", text)
