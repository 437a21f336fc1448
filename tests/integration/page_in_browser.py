"""page_in_browser.py DRIVER BROWSER PAGE [METRICS] [--pictures DIRECTORY]: opens the page and checks it.

No message on the console, charts with the data's values, heads chosen by pointer and keyboard, themes, no overflow and
readable tables on a phone. Speaks the WebDriver protocol itself. With --pictures it only takes pictures of the sections.
"""

import base64
import json
import re
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request

KEYS = {"right": "\ue014", "left": "\ue012", "down": "\ue015", "up": "\ue013", "enter": "\ue007"}
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Browser:
    """A session of a headless browser."""

    def __init__(self, driver, binary):
        self.process = subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            found = re.search(r"started successfully on port (\d+)", line)
            if found:
                break
        self.address = f"http://127.0.0.1:{found.group(1)}/session"
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        wanted = {"browserName": "chrome", "goog:loggingPrefs": {"browser": "ALL"},
                  "goog:chromeOptions": {"binary": binary, "args": arguments}}
        self.address += "/" + self.call("", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]

    def call(self, path, body=None, method="POST"):
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as problem:
            raise AssertionError(json.load(problem)["value"]["message"].splitlines()[0]) from None

    def run(self, script, *arguments):
        return self.call("/execute/sync", {"script": script, "args": list(arguments)})

    def size(self, width, height):
        command = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": command})
        time.sleep(0.3)

    def theme(self, name):
        media = {"features": [{"name": "prefers-color-scheme", "value": name}]}
        self.call("/goog/cdp/execute", {"cmd": "Emulation.setEmulatedMedia", "params": media})
        time.sleep(0.2)

    def open(self, page):
        self.call("/url", {"url": "file://" + page})
        for _ in range(100):
            if self.run("return document.documentElement.dataset.ready === 'true'"):
                time.sleep(0.3)
                return
            time.sleep(0.1)
        raise AssertionError(f"the page does not become ready: {self.messages()}")

    def messages(self):
        return [entry["message"] for entry in self.call("/se/log", {"type": "browser"})]

    def find(self, selector):
        return self.call("/element", {"using": "css selector", "value": selector})[ELEMENT]

    def click(self, selector):
        self.run("document.querySelector(arguments[0]).scrollIntoView({behavior: 'instant', block: 'center'})", selector)
        self.call(f"/element/{self.find(selector)}/click", {})

    def press(self, *names):
        actions = [{"type": kind, "value": KEYS.get(name, name)} for name in names for kind in ("keyDown", "keyUp")]
        self.call("/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def picture(self, path, selector=None):
        if selector:
            self.run("document.querySelector(arguments[0]).scrollIntoView({behavior: 'instant'})", selector)
            time.sleep(0.2)
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("/screenshot", method="GET")))

    def close(self):
        try:
            self.call("", method="DELETE")
        finally:
            self.process.terminate()
            self.process.wait()


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def decoded(matrix):
    """The values that matrix_to_json wrote."""
    raw = base64.b64decode(matrix["values"])
    step = (matrix["max"] - matrix["min"]) / 65535
    return [matrix["min"] + step * value for value in struct.unpack(f"<{len(raw) // 2}H", raw)]


def close(a, b, relative=1e-6):
    return len(a) == len(b) and all(abs(x - y) <= relative * max(abs(x), abs(y), 1e-9) for x, y in zip(a, b))


def check_curves(browser, metrics):
    lines = [json.loads(line) for line in open(metrics, encoding="utf-8")]
    for title, key in [("Training loss", "train_loss"), ("Validation loss", "valid_loss"), ("Learning rate", "learning_rate"),
                       ("Gradient norm", "gradient_norm"), ("Tokens per second", "tokens_per_second")]:
        values = [line[key] for line in lines if key in line]
        drawn = browser.run("const d = document.querySelector(`[data-chart='${arguments[0]}'] polyline`).dataset;"
                            "return [d.count, d.first, d.last, d.min, d.max].map(Number)", title)
        check(close(drawn, [len(values), values[0], values[-1], min(values), max(values)]), f"{title}: {drawn}")
    browser.run("document.querySelector(\"[data-chart='Training loss']\").focus()")
    browser.press("right", "right", "right")
    text = browser.run("return document.querySelector(\"[data-chart='Training loss'] + .readout\").textContent")
    expected = f"{lines[2]['train_loss']:.4g}"
    check(text.startswith(f"step {lines[2]['step']}: ") and expected in text, f"three keys on a chart say '{text}', not {expected}")


def check_attention(browser, data):
    attention = data["model"]["sentences"][0]["attention"]

    def shown():
        return browser.run("const h = document.getElementById('head');"
                           "return [h.dataset.path, Number(h.dataset.headNumber),"
                           " [...h.querySelectorAll('rect')].sort((a, b) => a.dataset.row - b.dataset.row || a.dataset.column - b.dataset.column)"
                           ".map((cell) => Number(cell.dataset.value))]")

    def check_head(path, head):
        one = next(each for each in attention if each["path"] == path)
        count = len(decoded(one["matrix"])) // one["heads"]
        for _ in range(50):  # a map is drawn once its width is known
            found_path, found_head, values = shown()
            if len(values) == count:
                break
            time.sleep(0.1)
        check((found_path, found_head) == (path, head), f"{found_path} {found_head} is shown, not {path} {head}")
        check(close(values, decoded(one["matrix"])[head * count:(head + 1) * count]), f"{len(values)} values of {path} {head}")
        columns = one["matrix"]["columns"]
        sums = [sum(values[at:at + columns]) for at in range(0, count, columns)]
        check(all(abs(each - 1) < 1e-3 for each in sums), f"rows of {path} {head} have the sums {sums}")

    check_head("encoder.layers.0.self_attention", 0)
    browser.click("button[aria-label='layer 1, head 3']")
    check_head("encoder.layers.0.self_attention", 2)
    browser.press("right", "down")
    check_head("encoder.layers.1.self_attention", 3)
    browser.run("document.querySelector('#attention [role=radiogroup] button').focus()")
    browser.press("right", "right")
    check_head("decoder.layers.0.cross_attention", 0)
    browser.run("document.querySelector('#head [data-heat-map]').focus()")
    browser.press("down", "down", "right")
    cell = browser.run("const c = document.querySelector('#head rect.chosen').dataset; return [Number(c.row), Number(c.column)]")
    check(cell == [1, 1], f"keys in the large map end at {cell}")


def check_rest(browser, data):
    tokens = browser.run("return [...document.querySelectorAll('#head svg text')].map((text) => text.textContent)")
    check(len(tokens) > 4, "no tokens at the axes")
    path = data["model"]["sentences"][0]["search"]["hypotheses"][0]["path"]
    pieces = browser.run("return arguments[0].map((node) => document.querySelector(`#search g[data-node='${node}']`).dataset.piece)", path)
    nodes = data["model"]["sentences"][0]["search"]["nodes"]
    check(pieces == [nodes[node][1] for node in path], "the best hypothesis in the tree")
    word = data["embeddings"][0]["words"][0]["neighbours"]
    drawn = browser.run("return [...document.querySelectorAll('#embeddings [data-cosine]')].map((bar) => Number(bar.dataset.cosine))")
    check(close(drawn[:len(word)], [each[1] for each in word]), "neighbours")
    bars = browser.run("return document.querySelectorAll('#norms [data-bars] [data-run]').length")
    check(bars > 4, f"{bars} bars of norms")
    check(browser.run("return window.hacked === undefined && document.querySelectorAll('img').length === 0"), "text was executed")
    check(browser.run("return document.body.textContent.includes('window.hacked')"), "hostile text is not shown as text")


def check_ranks(browser, data):
    run = data["runs"][0]
    memory = browser.run("return [...document.querySelectorAll('#mesh g[data-rank]')].map((box) => Number(box.dataset.memory))")
    held = [rank["memory"]["measured"] or rank["memory"]["planned"]
            for each in data["runs"] if each["report"] for rank in each["report"]["ranks"]]
    check(memory == [each["total"] for each in held], f"memory of the ranks: {memory}")
    parts = browser.run("return [...document.querySelectorAll('#mesh [data-bytes]')].map((part) => Number(part.dataset.bytes))")
    check(sum(parts) == sum(memory), "the parts of the ranks' memory")
    browser.run("document.querySelector('#mesh [role=group]').focus()")
    browser.press("right")
    text = browser.run("return document.querySelector('#mesh [data-rank=\"1\"][aria-live]').textContent")
    check("decoder layer 1" in text and "<b>node</b>" in text, f"rank 1 is told as '{text}'")
    drawn = browser.run("return [...document.querySelectorAll('#schedule rect')].map((bar) => ({...bar.dataset}))")
    events = [(lane["rank"], event) for lane in run["schedule"]["lanes"] for event in lane["events"]]
    expected = [(rank, event["kind"], event["begin"], event["duration"]) for rank, event in events]
    found = [(int(bar["rank"]), bar["kind"], float(bar["begin"]), float(bar["duration"])) for bar in drawn]
    check(found == expected and len(found) == 5, f"the schedule has {found}")
    width = "return document.querySelector('#schedule svg').getBoundingClientRect().width"
    before = browser.run(width)
    browser.run("document.querySelector('[data-schedule]').focus()")
    browser.press("+")
    check(browser.run(width) > 1.2 * before, "the schedule does not become wider")


def check_looks(browser):
    background = "return getComputedStyle(document.body).backgroundColor"
    browser.theme("dark")
    dark = browser.run(background)
    browser.theme("light")
    light = browser.run(background)
    check(dark != light, "dark and light look alike")
    for width in (1280, 390):
        browser.size(width, 900)
        wide = browser.run("return [document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        check(wide[0] <= wide[1], f"a page of {wide[0]} in a window of {wide[1]}")


def check_comparison(browser, data):
    """At 390 pixels the cells of the differences are readable; titles name the run where only one is shown."""
    browser.size(390, 900)
    cells = browser.run("const card = [...document.querySelectorAll('#comparison .card')].find((each) => each.textContent.startsWith('Configuration'));"
                        "const box = card.getBoundingClientRect();"
                        "return [...card.querySelectorAll('th, td')].map((cell) => { const at = cell.getBoundingClientRect();"
                        " return [cell.textContent, at.width, at.left >= box.left && at.right <= box.right]; })")
    check(len(cells) == 3 + 3 * len(data["differences"]), f"{len(cells)} cells of differences")
    for text, width, inside in cells:
        check(inside and width > 60, f"the cell '{text}' is {width} wide, inside the card: {inside}")
    for section in ("attention", "search", "packs", "positions", "embeddings", "data-0", "configuration"):
        title = browser.run("return document.querySelector(`#${arguments[0]} h2`).textContent", section)
        check(title.endswith(" of " + data["runs"][0]["name"]), f"the title '{title}' names no run")
    browser.size(1100, 900)
    hidden = browser.run("const nav = document.getElementById('contents'); const box = nav.getBoundingClientRect();"
                         "return [...nav.children].filter((each) => each.getBoundingClientRect().right > box.right + 1).length")
    check(hidden == 0, f"{hidden} entries of the contents are cut off")
    steps = browser.run("return [...document.querySelectorAll(\"[data-chart='Validation loss'] text[data-step]\")].map((each) => Number(each.dataset.step))")
    curve = data["runs"][0]["metrics"]["series"]["valid_loss"]["steps"]
    check([steps[0], steps[-1]] == [curve[0], curve[-1]], f"the axis has the steps {steps}")


def take_pictures(browser, directory):
    for name, width, theme in [("light", 1280, "light"), ("dark", 1280, "dark"), ("narrow", 390, "light")]:
        browser.size(width, 1000)
        browser.theme(theme)
        browser.picture(f"{directory}/{name}-top.png", "h1")
        for section in browser.run("return [...document.querySelectorAll('section')].map((each) => each.id)"):
            browser.picture(f"{directory}/{name}-{section}.png", f"#{section}")


def main():
    driver, binary, page = sys.argv[1:4]
    text = open(page, encoding="utf-8").read()
    data = json.loads(re.search(r'id="heddle-data">(.*?)</script>', text, re.S).group(1))
    browser = Browser(driver, binary)
    try:
        browser.size(1280, 900)
        browser.theme("light")
        browser.open(page)
        if "--pictures" in sys.argv:
            take_pictures(browser, sys.argv[-1])
        else:
            check_curves(browser, sys.argv[4])
            check_attention(browser, data)
            check_rest(browser, data)
            check_ranks(browser, data)
            check_looks(browser)
            check_comparison(browser, data)
        messages = browser.messages()
        check(not messages, f"the console has {messages}")
    finally:
        browser.close()
    print("done")


if __name__ == "__main__":
    main()
