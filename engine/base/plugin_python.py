# Serves a plug-in in Python to the engine, which starts python3 with this text and asks for one thing after another over
# standard input, which is a socket. A request is (what, seconds that it may take, bytes), then its bytes; an answer is
# (0, 0, bytes) and its bytes, or (1: wrong | 2: late, line, bytes) and words. What the plug-in prints goes to standard error.
import os
import signal
import sys
from array import array
from operator import index
from struct import Struct
from types import ModuleType

VERSION, STEPS_MOST, WORDS_MOST = int(sys.argv[2]), 1 << 18, 700
SCHEDULES = "buckets", "answer", "stage", "weight"
CONTEXT = "seed", "step", "first", "rank", "ranks"
HEAD, PACKET = Struct("<qdq"), Struct("<5q16dq")
sys.path[:] = [folder for folder in sys.path if folder]  # not the working folder: a digest of one file says all
wire = os.dup(0)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
path, source, own, parameters, sizes = sys.argv[1], "", None, {}, {}
latest = 0  # the line of the last step, or of the function that is called


class Overdue(BaseException):
    pass


class Wrong(Exception):
    def __init__(self, line, words):
        super().__init__(words)
        self.line = line


def overdue(signo, frame):
    raise Overdue


def short(value):
    text = repr(value)
    return text if len(text) < 60 else text[:57] + "..."


def line_of(function):
    code = getattr(function, "__code__", None)
    return code.co_firstlineno if code and code.co_filename == path else 0


# ---- what it is ----


def of_module(name, standard):
    return getattr(own, name, standard)


def line_where(name):
    return next((i for i, line in enumerate(source.splitlines(), 1) if line.startswith(name)), 0)


def parameters_of(function):
    """Its keyword-only parameters with a default are the plug-in's; the others are what the engine knows of a call."""
    code, standards = function.__code__, function.__kwdefaults__ or {}
    for name in code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]:
        if name in standards:
            if parameters.setdefault(name, float(standards[name])) != standards[name]:
                raise Wrong(line_of(function), f"'{name}' has two defaults, {parameters[name]:g} and {standards[name]}")
        elif name not in CONTEXT:
            raise Wrong(line_of(function), f"'{name}' has no default, and is none of {', '.join(CONTEXT)}")


def describe(text):
    global source, own
    source, own = text.decode(), ModuleType("engine_plugin")
    own.__file__ = path
    sys.modules[own.__name__] = own
    exec(compile(source, path, "exec", dont_inherit=True), own.__dict__)
    version = of_module("ENGINE_PLUGIN_VERSION", None)
    if version is None:
        raise Wrong(0, f"it lacks ENGINE_PLUGIN_VERSION = {VERSION}")
    if version != VERSION:
        raise Wrong(line_where("ENGINE_PLUGIN_VERSION"), f"version {short(version)}, and this engine takes version {VERSION}")
    reduces, codes = (callable(of_module(name, None)) for name in ("all_reduce", "encode"))
    schedules = sum(callable(of_module(name, None)) << i for i, name in enumerate(SCHEDULES))
    if not reduces and not codes and not schedules:
        words = ", ".join(SCHEDULES)
        raise Wrong(0, f"it has neither all_reduce(rank, ranks) nor encode(values) and decode(data, count), nor any of {words}")
    if codes and not callable(of_module("decode", None)):
        raise Wrong(0, "it has encode, and lacks decode(data, count)")
    order, block = of_module("ORDER", "own"), index(of_module("BLOCK", 0))
    if order not in ("tree", "ring", "own"):
        raise Wrong(line_where("ORDER"), f"ORDER is {short(order)}, and should be 'tree', 'ring' or 'own'")
    for function in (own.encode, own.decode) if codes else ():
        parameters_of(function)
    about = (own.__doc__ or "a plug-in in Python").strip().splitlines() or [""]
    lines = [f"{order if reduces else '-'} {block if codes else -1} {int(bool(of_module('FEEDBACK', True)))} {schedules}", about[0]]
    return "\n".join(lines + [f"{name} {value!r}" for name, value in parameters.items()]).encode()


# ---- an algorithm: its plan ----


def plan_leg(step, word, line):
    span = step.pop(word, None)
    if span is None:
        return -1, 0, 0
    try:
        peer, first, end = (index(x) for x in span)
        return array("i", (peer, first, end))
    except (TypeError, ValueError, OverflowError):
        raise Wrong(line, f"'{word}' is {short(span)}, and should be (rank, first chunk, end)") from None


def plan_step(step, line):
    if not isinstance(step, dict):
        raise Wrong(line, f"a step is {short(step)}, and should be as {{'send': (rank, first chunk, end)}}")
    step, adds = dict(step), "add" in step
    if adds and "put" in step:
        raise Wrong(line, "a step receives once: it has 'add' or 'put', not both")
    out, come = plan_leg(step, "send", line), plan_leg(step, "add" if adds else "put", line)
    if step:
        raise Wrong(line, f"a step has {short(next(iter(step)))}, and may have 'send', and 'add' or 'put'")
    if out[0] < 0 and come[0] < 0 and not out[2] and not come[2]:
        raise Wrong(line, "a step neither sends nor receives")
    return line, *out, *come, adds


def steps_of(rank, ranks):
    """Each step, and the line that has yielded it."""
    global latest
    latest = line = line_of(own.all_reduce)
    steps = own.all_reduce(rank, ranks)
    if not hasattr(steps, "__iter__"):
        raise Wrong(line, f"all_reduce({rank}, {ranks}) gives {short(steps)}, and should yield steps")
    for step in steps:
        inner = steps
        while getattr(inner, "gi_yieldfrom", None) is not None and hasattr(inner.gi_yieldfrom, "gi_frame"):
            inner = inner.gi_yieldfrom
        frame = getattr(inner, "gi_frame", None)
        latest = frame.f_lineno if frame and frame.f_code.co_filename == path else line
        yield step, latest


def plan(request):
    ranks = array("i", request)[0]
    chunks = index(own.chunks(ranks)) if hasattr(own, "chunks") else ranks
    words, total = array("i", [min(max(chunks, -1), 1 << 30)]), 0
    for rank in range(ranks):
        steps = array("i")
        for step, line in steps_of(rank, ranks):
            steps.extend(plan_step(step, line))
            total += 1
            if total > STEPS_MOST:
                raise Wrong(line, f"more than {STEPS_MOST} steps, of which this yields more and more")
        words.append(len(steps) // 8)
        words += steps
    return words.tobytes()


# ---- a compressor ----


def call(function, *args, context):
    global latest
    code, latest = function.__code__, line_of(function)
    names = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    return function(*args, **{name: context[name] for name in names})


def encoded(values, context):
    data = call(own.encode, values, context=context)
    try:
        return memoryview(data).tobytes()
    except TypeError:
        raise Wrong(line_of(own.encode), f"encode gives {short(data)}, and should give bytes") from None


def decoded(data, count, context):
    values = call(own.decode, data, count, context=context)
    try:
        view = memoryview(values) if hasattr(values, "tobytes") else None
        whole = view.tobytes() if view is not None and view.format == "f" else array("f", values).tobytes()
    except (TypeError, ValueError, OverflowError) as error:
        raise Wrong(line_of(own.decode), f"decode gives {short(values)}, and should give floats: {error}") from None
    if len(whole) != 4 * count:
        raise Wrong(line_of(own.decode), f"decode gives {len(whole) // 4} values, and should give {count}")
    return whole


def packet(request):
    *numbers, count = PACKET.unpack_from(request)
    values = zip(parameters, numbers[5:])
    return dict(zip(CONTEXT, numbers), **dict(values)), count, memoryview(request)[PACKET.size :]


def size_of(count, context):
    """Bytes of so many values: as many as their zeros take."""
    key = count, *(context[name] for name in parameters)
    if key not in sizes:
        sizes[key] = len(encoded(array("f", bytes(4 * count)), context))
    return sizes[key]


def room_of(count, context):
    return size_of(of_module("BLOCK", 0) or count, context)


def room(request):
    context, count, _ = packet(request)
    return array("q", [room_of(count, context)]).tobytes()


def encode(request):
    context, count, floats = packet(request)
    data, size = encoded(array("f", floats.tobytes()), context), size_of(count, context)
    if len(data) != size:
        raise Wrong(line_of(own.encode), f"encode gives {len(data)} bytes of {count} values, and {size} of as many zeros")
    if size > room_of(count, context):
        raise Wrong(line_of(own.encode), f"encode gives {size} bytes of {count} values, more than of a whole block")
    return data.ljust(room_of(count, context), b"\0") + decoded(data, count, context)


def decode(request):
    context, count, data = packet(request)
    return decoded(data[: size_of(count, context)].tobytes(), count, context)


# ---- a schedule ----


def scheduled(which, numbers):
    """What the function is given, and how many numbers it has to give."""
    whole = [int(x) for x in numbers]
    if which == 0:
        n = len(numbers) // 2 - 1
        return (list(numbers[2 : 2 + n]), list(numbers[2 + n :]), numbers[0], numbers[1]), n
    if which == 1:
        n = len(numbers) // 3
        return (numbers[0], whole[1], whole[2 : 2 + n], whole[2 + n : 2 + 2 * n], list(numbers[2 + 2 * n :])), 1
    return ((whole[0], numbers[1]), 1) if which == 3 else (whole, 2 * whole[2])


def schedule(request):
    global latest
    which, *numbers = array("d", request)
    args, n = scheduled(int(which), numbers)
    function = getattr(own, SCHEDULES[int(which)])
    latest = line_of(function)
    result = function(*args)
    try:
        values = array("d", result if which in (0, 2) else [result])
    except (TypeError, ValueError, OverflowError):
        values = []
    if len(values) != n:
        raise Wrong(latest, f"{SCHEDULES[int(which)]} gives {short(result)}, and should give {n} number{'s' * (n > 1)}")
    return values.tobytes()


# ---- requests ----


def read(n):
    parts = []
    while n and (part := os.read(wire, min(n, 1 << 20))):
        parts.append(part)
        n -= len(part)
    if n:
        os._exit(0)  # the engine has gone
    return b"".join(parts)


def write(kind, line, data):
    data = memoryview(HEAD.pack(kind, line, len(data)) + data)
    while data:
        data = data[os.write(wire, data) :]


def explain(error):
    """The line of the plug-in where it happened, and what, in words."""
    wrong, line, at = isinstance(error, Wrong), latest, error.__traceback__
    while at and not wrong:
        line = at.tb_lineno if at.tb_frame.f_code.co_filename == path else line
        at = at.tb_next
    line, words = error.line if wrong else line, f"{error}" if wrong else f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError) and error.filename == path:
        line, words = error.lineno, f"SyntaxError: {error.msg}"
    lines = source.splitlines()
    text = lines[line - 1].strip() if line and line <= len(lines) else ""
    return line or 0, f"{words[:WORDS_MOST]}\n{text[:WORDS_MOST]}".encode(errors="replace")


def answer(what, seconds, request):
    """Its timer rings once at most: inside, or while what has gone wrong inside is explained."""
    global latest
    latest = 0
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            return 0, 0, what(request)
        except Exception as error:
            return 1, *explain(error)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except BaseException as error:
        return 2 if isinstance(error, Overdue) else 1, *explain(error)


def serve():
    asked = describe, plan, room, encode, decode, schedule
    signal.signal(signal.SIGALRM, overdue)
    for signo in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signo, signal.SIG_IGN)  # the engine decides when it has ended
    while True:
        what, seconds, n = HEAD.unpack(read(HEAD.size))
        write(*answer(asked[what], seconds, read(n)))


try:
    serve()
except OSError:  # the engine has gone
    os._exit(0)
