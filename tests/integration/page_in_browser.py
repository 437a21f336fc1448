"""page_in_browser.py DRIVER BROWSER PAGE [METRICS] [--pictures DIRECTORY]: opens the page and checks it.

No message on the console, the functions that charts compute with, charts with the data's values on each axis, heads
chosen by pointer and keyboard, themes, no overflow and readable tables on a phone. Speaks the WebDriver protocol
itself. With --pictures it only takes pictures of the sections.
"""

import base64
import json
import math
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


def check_functions(browser):
    """Compares functions of the page's scripts with formulas of this file."""

    def call(expression, *arguments):
        return browser.run(f"return {expression}", *arguments)

    check(call("ticks(0, 1230, 3)") == [0, 500, 1000], "round numbers")
    # Labels of an axis stay apart, whatever its ends and its width.
    labels = call("[[10, 1230], [1, 9], [7, 7], [100, 123456789], [0.001, 0.0017]].flatMap((ends) => [120, 300, 353, 700, 1100].map((width) => "
                  "axis_labels(ends, scale_of(...ends, 52, width - 12, false), width, number_text).map(({left, right, text}) => [left, right, text])))")
    for axis in labels:
        check(axis and all(a[1] + 10 <= b[0] for a, b in zip(axis, axis[1:])), f"labels collide: {axis}")
    check([text for _, _, text in labels[2]] == ["10", "500", "1,000", "1,230"], f"labels of 10 to 1,230: {labels[2]}")
    check(call("[0, 12, 1234.5, 0.12345, 0.0005, 50000000].map(number_text)") == ["0", "12", "1,235", "0.1235", "5e-4", "5e7"], "texts of numbers")
    parts = call("[...html('p', {}, ...breakable('runs/a-b/step_1 0.125 model.d_ff')).childNodes].map((each) => each.textContent).filter(Boolean)")
    check(parts == ["runs/", "a-b/", "step_", "1 0.125 model.", "d_", "ff"], f"lines may end between {parts}")
    values = [4.0, 2.0, 3.0, 8.0]
    expected = [sum(0.9 ** (at - each) * values[each] for each in range(at + 1)) / sum(0.9 ** each for each in range(at + 1)) for at in range(4)]
    check(close(call("smoothed(arguments[0], 0.9)", values), expected), "smoothing")
    check(call("smoothed(arguments[0], 0)", values) == values, "no smoothing")
    check(close(call("[-5, 10, 15, 30, 99].map((x) => interpolated([10, 20, 40], [1, 3, 4], x))"), [1, 1, 2, 3.5, 4]), "interpolation")
    rows = [[1, 0, 0, 0], [0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0, 0], [0.7, 0.1, 0.1, 0.1]]
    entropy = -sum(weight * math.log2(weight) for row in rows for weight in row if weight > 0) / 4
    check(close([call("entropy_bits({rows: 4, columns: 4, values: Float64Array.from(arguments[0])})", sum(rows, []))], [entropy]), "entropy")
    check(call("epoch_ends({metrics: {series: {epoch: {steps: [10, 20, 30], values: [0.5, 1.5, 3.5]}}}}).map(({step, epoch}) => [step, epoch])")
          == [[15, 1], [22.5, 2], [27.5, 3]], "ends of epochs")
    check(call("[90, 119, 120, 7200, 172800].map((seconds) => time_unit(seconds)[1])") == ["s", "s", "min", "h", "d"], "units of time")


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
    names = browser.run("return [...document.querySelectorAll(\"[data-chart='Training loss'] + .readout .legend span\")].map((each) => each.textContent)")
    check(len(names) == 3 and names[2].startswith("third "), f"the legend of three runs is {names}")
    check(text.startswith(f"step {lines[2]['step']}: ") and expected in text, f"three keys on a chart say '{text}', not {expected}")


def check_starts(browser):
    """Restarts and changed layouts are marked, and a curve that ends before others says why."""
    marks = browser.run("return [...document.querySelectorAll(\"[data-chart='Training loss'] [data-start]\")].map((each) => [each.dataset.start, each.querySelector('title').textContent])")
    check(marks == [["layout", "run: resumed after step 10 with another layout, 2 ranks: pipeline 2 (the start before ended: stopped by SIGUSR1)"],
                    ["restart", "run: resumed after step 20 with 2 ranks: pipeline 2 (the start before ended: killed, ended by an error, or still training)"]], f"the starts are {marks}")
    ends = browser.run("return [...document.querySelectorAll(\"[data-chart='Training loss'] + .readout .ends\")].map((each) => each.textContent)")
    check(ends == ["third: ends at step 15: all steps were made"], f"curves end with {ends}")
    gone = browser.run("const curve = page.runs[0].metrics.series.valid_bleu; page.runs[0].metrics.series.gone = {...curve, steps: [1, 4, 7], not_finite: []};"
                       "return [curve_end(page.runs[0], 'gone'), curve_end(page.runs[0], 'valid_loss')]")
    check(gone == ["ends at step 7: not measured since the start after step 10 with another layout, 2 ranks: pipeline 2", ""], f"a measure that was given up: {gone}")
    browser.run("delete page.runs[0].metrics.series.gone")


def check_phone(browser):
    """At 375 pixels no column and no label is cut, and the contents follow the section that is read."""
    browser.size(375, 800)
    table = browser.run("const card = [...document.querySelectorAll('#mesh .card')].find((each) => each.textContent.startsWith('Communication')).querySelector('.scroll');"
                        "return [card.scrollWidth, card.clientWidth]")
    check(table[0] <= table[1], f"the table of communication is {table[0]} wide in {table[1]}")
    labels = browser.run("return [...document.querySelectorAll('#norms [data-label]')].map((each) => [each.textContent, each.getBoundingClientRect().left - each.closest('.scroll').getBoundingClientRect().left])")
    check(len(labels) > 10 and all(left >= 0 and "…" not in text for text, left in labels), f"labels of parameters: {labels}")
    for section in ("norms", "curves"):
        browser.run("document.getElementById(arguments[0]).scrollIntoView({behavior: 'instant'})", section)
        time.sleep(0.3)
        current = browser.run("const box = document.getElementById('contents').getBoundingClientRect(); return [...document.querySelectorAll('#contents [aria-current]')]"
                              ".map((each) => [each.getAttribute('href'), each.getBoundingClientRect().left >= box.left - 1 && each.getBoundingClientRect().right <= box.right + 1])")
        check(current == [[f"#{section}", True]], f"in {section} the contents mark {current}")


def check_choices(browser, metrics):
    """The axis, loss or perplexity, and smoothing, each by the keyboard."""
    lines = [json.loads(line) for line in open(metrics, encoding="utf-8")]

    def choose(label, *keys):
        browser.run("document.querySelector(`#curves [aria-label='${arguments[0]}'] [aria-checked=true]`).focus()", label)
        browser.press(*keys)

    def places(title):
        return browser.run("return [...document.querySelectorAll(`[data-chart='${arguments[0]}'] text[data-place]`)].map((each) => Number(each.dataset.place))", title)

    def curve(title):
        return browser.run("const d = document.querySelector(`[data-chart='${arguments[0]}'] polyline[data-first]`).dataset;"
                           "return [d.first, d.last].map(Number)", title)

    steps = browser.run("return [...document.querySelectorAll(\"[data-chart='Training loss'] [data-mark]\")].map((each) => each.dataset.mark)")
    check(steps and steps == sorted(steps, key=int) and int(steps[-1]) <= lines[-1]["epoch"], f"the marks of epochs are {steps}")
    for key, name in (("seconds", "training time"), ("tokens", "tokens")):
        choose("Horizontal axis", "right")
        found = places("Training loss")
        check(found[0] <= lines[0][key] * 1.001 and found[-1] >= lines[-1][key] * 0.999, f"the axis of {name} has {found}")
    choose("Horizontal axis", "right")
    check(places("Training loss")[0] == lines[0]["step"], "the arrow keys do not return to the steps")
    valid = [line["valid_loss"] for line in lines if "valid_loss" in line]
    choose("Loss or perplexity", "right")
    check(close(curve("Validation perplexity"), [math.exp(valid[0]), math.exp(valid[-1])]), "perplexity")
    choose("Loss or perplexity", "left")
    browser.run("const slider = document.querySelector('#curves input'); slider.value = 0.9; slider.dispatchEvent(new Event('input'))")
    check(curve("Validation loss")[1] > valid[-1] and browser.run(
        "return document.querySelectorAll(\"[data-chart='Validation loss'] .faint\").length") == 3, "smoothing changes nothing")
    text = browser.run("return document.querySelector(\"[data-chart='Validation loss'] + .readout\").textContent")
    check(f"{valid[-1]:.4g} (smoothed " in text, f"the values of a smoothed curve are '{text}'")
    browser.run("const slider = document.querySelector('#curves input'); slider.value = 0; slider.dispatchEvent(new Event('input'))")
    check(close(curve("Validation loss"), [valid[0], valid[-1]]), "smoothing stays")


def check_attention(browser, data):
    attention = data["model"]["sentences"][0]["attention"]

    def shown():
        return browser.run("const h = document.getElementById('head');"
                           "return [h.dataset.path, h.dataset.shown, Number(h.dataset.entropy),"
                           " [...h.querySelectorAll('rect')].sort((a, b) => a.dataset.row - b.dataset.row || a.dataset.column - b.dataset.column)"
                           ".map((cell) => Number(cell.dataset.value))]")

    def check_head(path, head):
        one = next(each for each in attention if each["path"] == path)
        count = len(decoded(one["matrix"])) // one["heads"]
        maps = [decoded(one["matrix"])[at * count:(at + 1) * count] for at in range(one["heads"])]
        expected = [sum(each) / len(maps) for each in zip(*maps)] if head is None else maps[head]
        name = "mean over heads" if head is None else f"head {head + 1}"
        for _ in range(50):  # a map is drawn once its width is known
            found_path, found_name, entropy, values = shown()
            if len(values) == count:
                break
            time.sleep(0.1)
        check((found_path, found_name) == (path, name), f"{found_path} {found_name} is shown, not {path} {name}")
        check(close(values, expected), f"{len(values)} values of {path} {name}")
        columns = one["matrix"]["columns"]
        sums = [sum(values[at:at + columns]) for at in range(0, count, columns)]
        check(all(abs(each - 1) < 1e-3 for each in sums), f"rows of {path} {name} have the sums {sums}")
        bits = -sum(weight * math.log2(weight) for weight in expected if weight > 0) / len(sums)
        check(close([entropy], [bits]), f"the entropy of {path} {name} is {entropy}, not {bits}")

    check_head("encoder.layers.0.self_attention", 0)
    browser.click("button[aria-label='layer 1, head 3']")
    check_head("encoder.layers.0.self_attention", 2)
    browser.press("right", "down")
    check_head("encoder.layers.1.self_attention", 3)
    browser.click("button[aria-label='layer 2, mean over heads']")
    check_head("encoder.layers.1.self_attention", None)
    kinds = browser.run("return [...document.querySelectorAll('#attention [role=radiogroup] button')].map((each) => each.textContent).slice(0, 3)")
    check(kinds == ["encoder self-attention", "decoder self-attention, causal", "decoder cross-attention"], f"kinds of attention: {kinds}")
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


def check_translations(browser, data):
    """The checkpoint's own translations, and those that validations have left, by the menu."""
    def rows():
        return browser.run("return [...document.querySelectorAll('#translations tbody tr')].map((row) => [...row.children].map((cell) => cell.textContent))")

    stored = data["runs"][0]["metrics"]["samples"]
    check(len(stored) == 3 and len(stored[-1]["rows"]) == 8, f"{len(stored)} validations left samples")
    check(rows() == stored[-1]["rows"], f"the newest translations are {rows()}")
    browser.run("const menu = document.querySelector('#translations select'); menu.selectedIndex = 2; menu.dispatchEvent(new Event('change'))")
    check(rows() == stored[0]["rows"], f"the first translations are {rows()}")


def check_cut_graph(browser):
    """A graph of a search that is wider than its box says so, and what is in view."""
    text = "return document.querySelector('#search .cut').textContent"
    browser.size(390, 900)
    check("steps 1 to 3 of" in browser.run(text), f"the cut graph says '{browser.run(text)}'")
    browser.run("const box = document.querySelector(\"[aria-label='Tree']\"); box.scrollLeft = box.scrollWidth")
    time.sleep(0.3)
    found = re.search(r"steps (\d+) to (\d+) of (\d+)", browser.run(text))
    check(found and found.group(2) == found.group(3) and int(found.group(1)) > 1, f"at its end the graph says '{browser.run(text)}'")
    browser.size(4000, 900)
    check(browser.run(text) == "", "a graph that is in view is called cut")
    browser.size(1280, 900)


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
    check(len(cells) == 4 + 4 * len(data["differences"]), f"{len(cells)} cells of differences of three runs")
    for text, width, inside in cells:
        check(inside and width > 40, f"the cell '{text}' is {width} wide, inside the card: {inside}")
    for section in ("attention", "search", "packs", "positions", "embeddings", "data-0", "configuration"):
        title = browser.run("return document.querySelector(`#${arguments[0]} h2`).textContent", section)
        check(title.endswith(" of " + data["runs"][0]["name"]), f"the title '{title}' names no run")
    browser.size(1100, 900)
    hidden = browser.run("const nav = document.getElementById('contents'); const box = nav.getBoundingClientRect();"
                         "return [...nav.children].filter((each) => each.getBoundingClientRect().right > box.right + 1).length")
    check(hidden == 0, f"{hidden} entries of the contents are cut off")
    steps = browser.run("return [...document.querySelectorAll(\"[data-chart='Validation loss'] text[data-place]\")].map((each) => Number(each.dataset.place))")
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
            check_functions(browser)
            check_starts(browser)
            check_curves(browser, sys.argv[4])
            check_choices(browser, sys.argv[4])
            check_attention(browser, data)
            check_rest(browser, data)
            check_translations(browser, data)
            check_cut_graph(browser)
            check_ranks(browser, data)
            check_looks(browser)
            check_comparison(browser, data)
            check_phone(browser)
        messages = browser.messages()
        check(not messages, f"the console has {messages}")
    finally:
        browser.close()
    print("done")


if __name__ == "__main__":
    main()
