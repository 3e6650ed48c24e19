"""The examples of docstrings and of the README run, and the stubs have each name."""

import ast
import doctest
import inspect
import pathlib
import re

import pytest

import pando
import pando._pando

CLASSES = [found for found in vars(pando._pando).values() if inspect.isclass(found)]
HERE = pathlib.Path(__file__).parent


def test_the_examples_of_docstrings_run():
    finder, runner = doctest.DocTestFinder(exclude_empty=True), doctest.DocTestRunner()
    for found in CLASSES:
        named = [(found.__name__, found.__doc__)]
        named += [(name, member.__doc__) for name, member in vars(found).items()]
        for name, text in named:
            if text and ">>>" in text:
                test = doctest.DocTestParser().get_doctest(text, {}, name, None, None)
                runner.run(test)
    assert finder and runner.tries > 30 and runner.failures == 0


def test_each_method_has_a_docstring():
    for found in CLASSES:
        for name, member in vars(found).items():
            if not name.startswith("_"):
                assert member.__doc__, f"{found.__name__}.{name}"


@pytest.mark.parametrize("page", [HERE.parent / "README.md", HERE.parents[2] / "docs/python.md"])
def test_the_examples_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert examples
    for example in examples:
        exec(compile(example, str(page), "exec"), {})


def test_the_stubs_have_each_method():
    stubs = ast.parse((pathlib.Path(pando.__file__).parent / "__init__.pyi").read_text())
    classes = {node.name: node for node in stubs.body if isinstance(node, ast.ClassDef)}
    for found in CLASSES:
        stub = {
            node.name: node
            for node in classes[found.__name__].body
            if isinstance(node, ast.FunctionDef)
        }
        public = {name for name in vars(found) if not name.startswith("_")}
        assert public <= set(stub), found.__name__
        extra = {name for name in stub if not name.startswith("_")} - public
        assert not extra, found.__name__
        for name in public:
            member = vars(found)[name]
            if callable(member) and not isinstance(member, staticmethod):
                try:
                    parameters = list(inspect.signature(member).parameters)
                except ValueError:
                    continue
                arguments = stub[name].args
                named = [a.arg for a in arguments.posonlyargs + arguments.args]
                named += [arguments.vararg.arg] if arguments.vararg else []
                named += [a.arg for a in arguments.kwonlyargs]
                named += [arguments.kwarg.arg] if arguments.kwarg else []
                if name != "pop":
                    assert parameters == named, f"{found.__name__}.{name}"


@pytest.mark.parametrize("name", [name for name in pando.__all__ if name.endswith("Error")])
def test_each_error_is_one_of_pando(name):
    error = getattr(pando, name)
    assert issubclass(error, pando.Error) and error.__doc__ and error.__module__ == "pando"
