"""The rules that keep the tree in its layers; `test_architecture.py` applies them.

A rule takes the path of a file, relative to the checkout, and its text. It returns what is wrong
with it as a list of sentences.
"""

import ast
import inspect
import re

# A layer imports itself and layers with a smaller number. Equal numbers do not know each other.
PYTHON_LAYERS = {
    "examples": 8,
    "tfsparse": 7,  # tfsparse/__init__.py, the facade
    "cli": 6,
    "keras_layers": 5,
    "online": 4,
    "pipeline": 3,
    "checkpoint": 3,
    "export": 3,
    "embedding": 2,
    "runtime": 1,
    "ops": 1,
    "stack": 0,
    "version": 0,
}
PUBLIC_LAYERS = ("examples", "tfsparse", "keras_layers")  # what examples may import

CPP_LAYERS = {"kernels": 3, "schema": 2, "tiers": 1, "core": 0}  # folders of custom_ops
STANDARD_HEADERS = frozenset(
    """
    algorithm any array atomic bitset cassert cctype cerrno cfenv cfloat charconv chrono cinttypes
    climits clocale cmath complex condition_variable csetjmp csignal cstdarg cstddef cstdint cstdio
    cstdlib cstring ctime cuchar cwchar cwctype deque exception execution filesystem forward_list
    fstream functional future initializer_list iomanip ios iosfwd iostream istream iterator limits
    list locale map memory memory_resource mutex new numeric optional ostream queue random ratio
    regex scoped_allocator set shared_mutex sstream stack stdexcept streambuf string string_view
    system_error thread tuple type_traits typeindex typeinfo unordered_map unordered_set utility
    valarray variant vector
    """.split()
)
CUDA_HEADER = re.compile(r"cuda|cub/|thrust/|cooperative_groups|device_launch|nccl")
TENSORFLOW_HEADER = re.compile(r"(tensorflow|tsl|absl|Eigen|unsupported/Eigen)/")
SYSTEM_HEADER = re.compile(r"((sys|linux)/)?\w+\.h")

FRAMEWORKS = ("tensorflow", "keras", "horovod")
PRIVATE_PARTS = ("python", "core", "compiler", "src", "engine")  # of tensorflow and keras

MAX_SOURCE_LINES = 600
MACHINE_PATHS = tuple("/" + rest for rest in ("work/", "tmp/w", "root/"))

ARGUMENT = re.compile(r"(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: \([^)]*\))?:(.*)")
DEFAULT = re.compile(
    r"\b[Dd]efault(?:s to|:)?\s+"
    r"(`[^`]+`|\"[^\"]*\"|'[^']*'|None|True|False|[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)"
    r"(?=[\s.,;:)]|$)"
)


def include_violations(path, text):
    """C++ includes go down the layers, and outside code enters where it belongs."""
    layer = path.split("/")[1]
    if layer not in CPP_LAYERS:
        return [f"'{layer}' is no layer of custom_ops; the layers are {list(CPP_LAYERS)}"]
    violations = []
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r"\s*#\s*include\s*[<\"]([^>\"]+)[>\"]", line)
        if match and not _include_is_allowed(path, layer, match.group(1)):
            violations.append(f"line {number}: {layer} must not include {match.group(1)}")
    return violations


def _include_is_allowed(path, layer, header):
    target = header.split("/")[0]
    if target in CPP_LAYERS:
        return target == layer or CPP_LAYERS[target] < CPP_LAYERS[layer]
    if header in STANDARD_HEADERS:
        return True
    if CUDA_HEADER.match(header):
        return path.startswith("custom_ops/tiers/cuda/")
    if TENSORFLOW_HEADER.match(header):
        return layer in ("schema", "kernels")
    return _may_call_the_system(path, layer) and SYSTEM_HEADER.fullmatch(header) is not None


def _may_call_the_system(path, layer):
    """In core memory of rows alone: the standard library never gives back. In kernels files alone
    that are written in several places by turns: TensorFlow's can only be appended to."""
    alone = ("custom_ops/core/system_memory.h", "custom_ops/kernels/row_file.cc")
    return layer == "tiers" or path in alone


def import_violations(path, text):
    """Python imports go down the layers, and examples use public names only."""
    layer = _layer_of_file(path)
    if layer not in PYTHON_LAYERS:
        return [f"'{layer}' is no layer; add it to PYTHON_LAYERS, where it belongs"]
    violations = []
    for number, module in _imported(path, ast.parse(text)):
        target = _layer_of_module(module)
        if module.split(".")[0] == "keras_layers":
            violations.append(f"line {number}: keras_layers is called tfsparse.keras_layers")
        elif target is None or target == layer:
            continue
        elif layer == "examples" and target not in PUBLIC_LAYERS:
            violations.append(f"line {number}: examples must not import {module}: it is not public")
        elif PYTHON_LAYERS[target] >= PYTHON_LAYERS[layer]:
            violations.append(f"line {number}: {layer} must not import {module}")
    return violations


def horovod_violations(path, text):
    """Collectives are in tfsparse/runtime and nowhere else."""
    if path.startswith("tfsparse/runtime"):
        return []
    return [f"line {line}: imports horovod" for line in horovod_import_lines(path, text)]


def horovod_import_lines(path, text):
    """The lines of a file that import horovod."""
    return [line for line, name in _imported(path, ast.parse(text)) if _root(name) == "horovod"]


def private_name_violations(path, text):
    """TensorFlow and Keras are used by their public names."""
    tree = ast.parse(text)
    names = list(_imported(path, tree))
    aliases = _framework_aliases(tree)
    for node in ast.walk(tree):
        name = _dotted_name(node)
        if name and _root(name) in aliases:
            names.append((node.lineno, aliases[_root(name)] + name[len(_root(name)) :]))
    private = {(line, _private_prefix(name)) for line, name in names}
    return [f"line {line}: {name} is private" for line, name in sorted(private) if name]


def _private_prefix(name):
    """The dotted name up to its first private part; empty when there is none."""
    parts = name.split(".")
    if parts[0] not in ("tensorflow", "keras"):
        return ""
    for position, part in enumerate(parts):
        hidden = part.startswith("_") and not part.startswith("__")
        if hidden or part in PRIVATE_PARTS:
            return ".".join(parts[: position + 1])
    return ""


def patching_violations(path, text):
    """Nothing of TensorFlow, Keras or Horovod is replaced."""
    tree = ast.parse(text)
    aliases = _framework_aliases(tree)
    violations = []
    for node in ast.walk(tree):
        targets = []
        if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
            targets = [node]
        elif isinstance(node, ast.Call) and _dotted_name(node.func) in ("setattr", "delattr"):
            targets = node.args[:1]
        for target in targets:
            while isinstance(target, (ast.Attribute, ast.Subscript)):
                target = target.value
            if isinstance(target, ast.Name) and target.id in aliases:
                violations.append(f"line {node.lineno}: changes {aliases[target.id]}")
    return violations


def length_violations(path, text):
    """A source file is read in one sitting."""
    lines = len(text.splitlines())
    return [] if lines <= MAX_SOURCE_LINES else [f"{lines} lines, more than {MAX_SOURCE_LINES}"]


def machine_path_violations(path, text):
    """No file speaks of the machine that it was written on."""
    return [
        f"line {number}: names {machine_path}"
        for number, line in enumerate(text.splitlines(), 1)
        for machine_path in MACHINE_PATHS
        if machine_path in line
    ]


def docstring_violations(path, text):
    """Every public function, class and method says what it is for."""
    violations = []
    unvisited = [ast.parse(text)]
    while unvisited:
        for node in unvisited.pop().body:
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                continue
            if node.name.startswith("_") or _is_told_elsewhere(node):
                continue
            if not ast.get_docstring(node):
                violations.append(f"line {node.lineno}: {node.name} has no docstring")
            if isinstance(node, ast.ClassDef):
                unvisited.append(node)
    return violations


def _is_told_elsewhere(node):
    """Setters are told by their property, overloads by the implementation."""
    names = [_dotted_name(decorator) or "" for decorator in node.decorator_list]
    return any(name.split(".")[-1] in ("setter", "deleter", "overload") for name in names)


def default_violations(path, text):
    """A default in a docstring is the default of the signature."""
    violations = []
    tree = ast.parse(text)
    assignments = [node for node in tree.body if isinstance(node, ast.Assign)]
    constants = {_dotted_name(node.targets[0]): node.value for node in assignments}
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        actual, takes_others = _defaults(node)
        for argument, told in _told_defaults(ast.get_docstring(node) or "").items():
            where = f"line {node.lineno}: {node.name} says that `{argument}` is {told} by default"
            if argument not in actual:
                if not takes_others:
                    violations.append(f"{where}, but has no such argument")
            elif actual[argument] is None:
                violations.append(f"{where}, but requires it")
            elif not _same_value(told, actual[argument], constants):
                violations.append(f"{where}, but it is {ast.unparse(actual[argument])}")
    return violations


def _told_defaults(docstring):
    """The defaults that the `Args` section of a docstring states, by argument, as text."""
    sections = re.split(r"^Args:\n", inspect.cleandoc(docstring), flags=re.MULTILINE)
    entries = []
    for line in sections[1].splitlines() if len(sections) > 1 else []:
        if line and not line.startswith(" "):
            break
        match = ARGUMENT.fullmatch(line[4:])
        if match:
            entries.append([match.group(1).replace("*", "").split(", "), match.group(2)])
        elif entries:
            entries[-1][1] += " " + line.strip()
    told = {}
    for arguments, description in entries:
        match = DEFAULT.search(description)
        if match:
            told.update((argument, match.group(1)) for argument in arguments)
    return told


def _defaults(node):
    """Returns the default of each argument (None: required), and whether others are taken too."""
    if isinstance(node, ast.ClassDef):
        for member in node.body:
            if isinstance(member, ast.FunctionDef) and member.name == "__init__":
                return _defaults(member)
        fields = [member for member in node.body if isinstance(member, ast.AnnAssign)]
        return {field.target.id: _field_default(field.value) for field in fields}, not fields
    arguments = node.args
    positional = arguments.posonlyargs + arguments.args
    padding = [None] * (len(positional) - len(arguments.defaults))
    defaults = dict(zip([a.arg for a in positional], padding + arguments.defaults))
    defaults.update(zip([a.arg for a in arguments.kwonlyargs], arguments.kw_defaults))
    return defaults, arguments.kwarg is not None


def _field_default(value):
    """Looks into `dataclasses.field(default=...)`."""
    if isinstance(value, ast.Call) and (_dotted_name(value.func) or "").endswith("field"):
        return next((word.value for word in value.keywords if word.arg == "default"), value)
    return value


def _same_value(told, actual, constants):
    try:
        expected = ast.parse(told.strip("`"), mode="eval").body
    except SyntaxError:
        return False
    if isinstance(actual, ast.Name):
        actual = constants.get(actual.id, actual)
    if not (_is_literal(expected) and _is_literal(actual)):
        return ast.dump(expected) == ast.dump(actual)
    left, right = (eval(ast.unparse(literal)) for literal in (expected, actual))
    return left == right and isinstance(left, bool) == isinstance(right, bool)


def _is_literal(node):
    """Whether an expression is made of literals and arithmetic, like `1 << 16`."""
    parts = (ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.UnaryOp, ast.BinOp)
    parts += (ast.unaryop, ast.operator, ast.expr_context)
    return all(isinstance(part, parts) for part in ast.walk(node))


def _layer_of_file(path):
    parts = path.split("/")
    if parts[0] != "tfsparse" or parts[1] == "__init__.py":
        return parts[0]
    return parts[1].split(".")[0]


def _layer_of_module(module):
    parts = module.split(".")
    if parts[0] == "tfsparse" and len(parts) > 1 and parts[1] in PYTHON_LAYERS:
        return parts[1]
    return parts[0] if parts[0] in ("tfsparse", "examples") else None


def _imported(path, tree):
    """Yields `(line, module.name)` of all that a file imports, at the top or in a function."""
    package = path.split("/")[:-1]
    if package[:1] == ["keras_layers"]:
        package = ["tfsparse"] + package
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = base + ([node.module] if node.module else [])
            yield from ((node.lineno, ".".join(base + [alias.name])) for alias in node.names)


def _framework_aliases(tree):
    """The names that a file gives to parts of TensorFlow, Keras and Horovod, with their own."""
    aliases = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.name if alias.asname else _root(alias.name)
                aliases[alias.asname or name] = name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return {alias: name for alias, name in aliases.items() if _root(name) in FRAMEWORKS}


def _root(name):
    return name.split(".")[0]


def _dotted_name(node):
    """`a.b.c` for the expression a.b.c, None for other expressions."""
    if isinstance(node, ast.Attribute):
        value = _dotted_name(node.value)
        return f"{value}.{node.attr}" if value else None
    return node.id if isinstance(node, ast.Name) else None
