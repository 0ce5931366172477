"""Makes terminal.svg, the picture in the README, of a real session: python3 terminal.py PROGRAM

The program runs on a terminal of its own, 80 by 26, which has room for all of it, in a home that is made for it. The
model is scripted and speaks chat completions. What differs from run to run (ports, process ids, times) is put in one form
before the screen is drawn, so that the same program gives the same bytes.
"""

import fcntl
import html
import http.server
import json
import os
import pathlib
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import unicodedata

COLUMNS, ROWS = 80, 26
WAIT_MAX_SECONDS = 30
THINKING_SECONDS = 0.5

LIMITS = """\
ITEMS_MAX = 100


def accepts(items):
    return len(items) < ITEMS_MAX
"""

TESTS = """\
import unittest

from limits import ITEMS_MAX, accepts


class Limits(unittest.TestCase):
    def test_just_under(self):
        self.assertTrue(accepts([0] * ITEMS_MAX))

    def test_just_over(self):
        self.assertFalse(accepts([0] * (ITEMS_MAX + 1)))
"""

QUESTION = "The test of the limit fails at exactly 100 items. Can you fix it?"

# What the model says, one after the other: a text and a call, or a text alone.
ANSWERS = [
    (
        "`ITEMS_MAX` itself is refused: the comparison leaves it out.",
        ("call_7f3a", "edit_file", {"path": "limits.py", "old_string": "< ITEMS_MAX", "new_string": "<= ITEMS_MAX"}),
    ),
    ("", ("call_b21c", "exec", {"argv": ["python3", "-m", "unittest", "-q"]})),
    ("Fixed: `accepts` takes **100** items and refuses 101. Both tests pass.", None),
]

# What is not the same in each run, and what stands for it.
MASKS = [
    (rb"http://127\.0\.0\.1:\d+", b"http://127.0.0.1:8765"),
    (rb"\(pid \d+,", b"(pid 4711,"),
    (rb"\xe2\x94\x80 \d+\.\d s", "─ 4.2 s".encode()),
    (rb"exit 0, [\d.]+ s", b"exit 0, 0.1 s"),
    (rb"in \d+\.\d{3}s", b"in 0.001s"),
]


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    picture = pathlib.Path(__file__).with_name("terminal.svg")
    with tempfile.TemporaryDirectory(prefix="nexus3-picture-") as home:
        written = session(program, pathlib.Path(home)).replace(home.encode(), b"/home/you")
    for pattern, form in MASKS:
        written = re.sub(pattern, form, written)
    # Higher than the terminal, so that nothing is lost above; the last rows are what a person sees.
    screen = Screen(COLUMNS, 200)
    screen.feed(written.decode())
    picture.write_text(svg(screen.last(ROWS)))


def session(program, home):
    """What the program writes until the model has answered."""
    work = home / "api"
    work.mkdir()
    (work / "limits.py").write_text(LIMITS)
    (work / "test_limits.py").write_text(TESTS)
    model = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=model.serve_forever, daemon=True).start()
    provider = {
        "type": "openai",
        "base_url": f"http://127.0.0.1:{model.server_port}/v1",
        "models": {"scripted": {"context_window": 200_000}},
    }
    config = {
        "default_model": "scripted",
        "providers": {"mine": provider},
        "server": {"port": 0, "socket": str(home / "rpc.sock")},
    }
    (home / ".nexus3").mkdir()
    (home / ".nexus3" / "config.json").write_text(json.dumps(config))
    terminal = Terminal(program, home, work)
    try:
        terminal.until("new session")
        terminal.press(QUESTION + "\r")
        terminal.until("y once")
        # A key that comes at once is not taken for an answer: nobody can have read the question.
        time.sleep(1)
        terminal.press("y")
        terminal.until("Both tests pass")
        terminal.until("\u2500 ")
        terminal.until("%")
        written = bytes(terminal.written)
        terminal.press("\x04")
        terminal.process.wait(WAIT_MAX_SECONDS)
        return written
    finally:
        terminal.process.kill()
        model.shutdown()


class Terminal:
    """The program, what it wrote, and its keys."""

    def __init__(self, program, home, work):
        self.screen, line = pty.openpty()
        fcntl.ioctl(line, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        environment = {"HOME": str(home), "PATH": os.environ["PATH"], "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        self.process = subprocess.Popen(
            [program, "--fresh"], stdin=line, stdout=line, stderr=line, cwd=work, env=environment
        )
        os.close(line)
        self.written = bytearray()
        self.seen = 0

    def press(self, keys):
        os.write(self.screen, keys.encode())

    def until(self, text):
        """Waits until this is written, behind what was waited for before."""
        text, deadline = text.encode(), time.monotonic() + WAIT_MAX_SECONDS
        while (at := self.written.find(text, self.seen)) < 0:
            ready, _, _ = select.select([self.screen], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                sys.exit(f"{text!r} was not written:\n{self.written[-3000:]!r}")
            self.written += os.read(self.screen, 65536)
        self.seen = at + len(text)


class Model(http.server.BaseHTTPRequestHandler):
    """Speaks chat completions: each request gets the next of the answers, by how many it holds already."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        # As a model would: what comes before the terminal watches is told without its change.
        time.sleep(THINKING_SECONDS)
        said = sum(message["role"] == "assistant" for message in request["messages"])
        text, call = ANSWERS[said]
        delta = {"role": "assistant", "content": text}
        if call:
            name, tool, arguments = call
            function = {"name": tool, "arguments": json.dumps(arguments)}
            delta["tool_calls"] = [{"index": 0, "id": name, "type": "function", "function": function}]
        usage = {"prompt_tokens": 3120 + 410 * said, "completion_tokens": 64}
        events = [
            {"choices": [{"index": 0, "delta": delta}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if call else "stop"}]},
            {"choices": [], "usage": usage},
        ]
        body = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


class Screen:
    """As much of an emulator as the terminal asks for: text, relative moves, erasing, colours, one saved place."""

    SEQUENCE = re.compile(r"\x1b\[([?<>=]?)([\d;]*)([@-~])|\x1b\](.*?)(?:\x07|\x1b\\)|\x1b([78])|(\r)|(\n)|([^\x00-\x1f])")

    def __init__(self, columns, rows):
        self.columns = columns
        self.cells = [[(" ", ())] * columns for _ in range(rows)]
        self.row = self.column = 0
        self.saved = (0, 0)
        self.style = ()
        self.wraps = True

    def feed(self, text):
        for match in self.SEQUENCE.finditer(text):
            private, numbers, final, _, place, back, down, character = match.groups()
            if character:
                self.put(character)
            elif back:
                self.column = 0
            elif down:
                self.row += 1
            elif place == "7":
                self.saved = (self.row, self.column)
            elif place == "8":
                self.row, self.column = self.saved
            elif private == "?" and numbers == "7":
                self.wraps = final == "h"
            elif final and not private:
                self.control(final, [int(number or 0) for number in numbers.split(";")])

    def control(self, final, numbers):
        if final == "A":
            self.row -= max(1, numbers[0])
        elif final == "B":
            self.row += max(1, numbers[0])
        elif final in "JK":
            blank = [(" ", ())]
            self.cells[self.row][self.column :] = blank * (self.columns - self.column)
            if final == "J":
                for row in range(self.row + 1, len(self.cells)):
                    self.cells[row] = blank * self.columns
        elif final == "m":
            self.style = tuple(number for number in numbers if number)

    def put(self, character):
        width = 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if self.column + width > self.columns:
            if not self.wraps:
                return
            self.row, self.column = self.row + 1, 0
        self.cells[self.row][self.column] = (character, self.style)
        self.column += width

    def last(self, count):
        """The last rows with something in them."""
        filled = [number for number, row in enumerate(self.cells) if any(cell[0] != " " for cell in row)]
        end = max(filled[-1] + 1, count)
        return self.cells[end - count : end]


# The background is the picture's own: it looks the same on a light page and on a dark one.
BACKGROUND, FOREGROUND, FAINT = "#16191f", "#d7dae0", "#8b93a1"
COLOURS = {
    30: "#4b5263", 31: "#f07178", 32: "#98c379", 33: "#e5c07b", 34: "#61afef", 35: "#c792ea", 36: "#56c8d8", 37: "#d7dae0",
    90: "#8b93a1", 91: "#ff8b92", 92: "#b5e08d", 93: "#ffd58a", 94: "#82c4ff", 95: "#ddb3ff", 96: "#7fe3ef", 97: "#ffffff",
}  # fmt: skip
CELL_WIDTH, CELL_HEIGHT, MARGIN, FONT_SIZE = 8.4, 18, 14, 14


def svg(rows):
    width, height = COLUMNS * CELL_WIDTH + 2 * MARGIN, len(rows) * CELL_HEIGHT + 2 * MARGIN
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}"'
        f' height="{height:g}" font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, \'DejaVu Sans Mono\','
        f' monospace" font-size="{FONT_SIZE}" role="img">',
        "<title>nexus3 in a terminal: a question, the change that the agent makes, its test, and the answer</title>",
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>',
    ]
    for number, row in enumerate(rows):
        for column, text, style in runs(row):
            x, y = MARGIN + column * CELL_WIDTH, MARGIN + number * CELL_HEIGHT + FONT_SIZE - 1
            # The length is given, so that columns stand below each other in any font.
            out.append(
                f'<text x="{x:.1f}" y="{y:g}" textLength="{len(text) * CELL_WIDTH:.1f}"{look(style)}'
                f' xml:space="preserve">{html.escape(text)}</text>'
            )
    return "\n".join(out + ["</svg>", ""])


def runs(row):
    """Stretches of one style, without the blanks around them: column, text, style."""
    start = 0
    while start < len(row):
        end = start
        while end < len(row) and row[end][1] == row[start][1]:
            end += 1
        text = "".join(character for character, _ in row[start:end])
        # Wide gaps are left out, so that what stands behind them does not depend on the width of a blank.
        for piece in re.finditer(r"\S+(?: \S+)*", text):
            yield start + piece.start(), piece.group(), row[start][1]
        start = end


def look(style):
    colour = next((COLOURS[number] for number in style if number in COLOURS), None)
    colour = colour or (FAINT if 2 in style else FOREGROUND)
    words = f' fill="{colour}"'
    if 1 in style:
        words += ' font-weight="bold"'
    if 3 in style:
        words += ' font-style="italic"'
    if 4 in style:
        words += ' text-decoration="underline"'
    return words


if __name__ == "__main__":
    main()
