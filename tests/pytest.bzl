"""Tests that pytest runs."""

def pytest_test(name, deps = [], data = [], **kwargs):
    """Makes a py_test of the file `name`.py.

    Args:
      name: Of the test, and of its file without .py.
      deps: Libraries that it imports, or runs as programs.
      data: Files that it reads or runs.
      **kwargs: See py_test.
    """
    native.py_test(
        name = name,
        srcs = [name + ".py", "run_pytest.py"],
        main = "run_pytest.py",
        args = ["$(location %s.py)" % name],
        data = data + [name + ".py"],
        deps = deps,
        **kwargs
    )
