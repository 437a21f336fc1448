"""serve_page_in_browser.py DRIVER BROWSER [PICTURES]: the page of a server, in a directory with a model in run/.

With a third argument it also leaves pictures in that directory.
"""

import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.environ["HEDDLE_SOURCE"], "tests/support"))
from page_in_browser import Browser, check  # noqa: E402
from server_client import Server, texts_of  # noqa: E402

SHOWN = "return [...document.querySelectorAll('#target p:not(.growing)')].map((each) => each.textContent)"
TOKEN = "0123456789abcdef"


def until(browser, script, expected):
    for _ in range(100):
        found = browser.run(script)
        if found == expected:
            return
        time.sleep(0.05)
    raise AssertionError(f"{script} gives {found}, not {expected}: {browser.run('return document.getElementById(`state`).textContent')}")


def type_text(browser, text):
    browser.run("document.getElementById('source').focus()")
    browser.press(*text)


def check_page(browser, server, pictures):
    fields = f"Authorization: Bearer {TOKEN}\r\n"
    until(browser, "return document.getElementById('access').hidden", False)
    browser.run("document.getElementById('token').focus()")
    browser.press(*TOKEN, "enter")
    until(browser, "return document.documentElement.dataset.ready", "true")
    until(browser, "return document.getElementById('access').hidden", True)
    check(not browser.run("return document.getElementById('model').parentElement.hidden"), "two models, and no choice")

    options = browser.run("return [...document.querySelectorAll('#model option')].map((each) => each.textContent)")
    check(options == ["run", "second (run)"], f"the models are {options}")

    first = texts_of(server.post({"text": "three hundred and seven"}, fields)[2])
    type_text(browser, "three hundred and seven")
    until(browser, SHOWN, first)
    listed = json.loads(server.post({"text": "three hundred and seven", "n_best": 3}, fields)[2])["results"][0]["translations"]
    until(browser, "return [...document.querySelectorAll('.list li')].map((each) => [...each.querySelectorAll('.word')].map((word) => word.textContent).join(' '))", [each["text"] for each in listed])
    check(browser.run("return [...document.querySelectorAll('.score')].every((each) => Number(each.textContent) < 0)"), "scores")
    hover = ("const word = document.querySelectorAll('.list h2 .word')[arguments[0]]; word.dispatchEvent(new PointerEvent(arguments[1]));"
             "return document.querySelectorAll('.list .aligned').length")
    marked = [browser.run(hover, word, "pointerenter") or browser.run(hover, word, "pointerleave") for word in range(4)]
    check(max(marked) >= 2, f"words that are marked as aligned: {marked}")
    linked = browser.run("const of = (selector) => [...document.querySelectorAll(selector)].map((each) => getComputedStyle(each).borderBottomColor);"
                         "return [of('.list h2 .linked'), of('.list li:first-child .linked'), document.getElementById('hint').hidden]")
    check(linked[0] and linked[1] and set(linked[1]) <= set(linked[0]) and not linked[2], f"alignments that are seen without a pointer: {linked}")
    # Older requests do not write over newer ones, and text is never markup.
    lines = ["three hundred and seven <img src=x onerror='window.hacked = 1'>", "five thousand"]
    browser.run("const s = document.getElementById('source'); s.value = arguments[0]; s.dispatchEvent(new Event('input'))", "\n".join(lines))
    until(browser, SHOWN, texts_of(server.post({"texts": lines}, fields)[2]))
    check(browser.run("return window.hacked === undefined && document.querySelectorAll('img').length === 0"), "text was executed")
    background = "return getComputedStyle(document.body).backgroundColor"
    colours = []
    for theme in ("dark", "light"):
        browser.theme(theme)
        colours.append(browser.run(background))
        for width in (1280, 390):
            browser.size(width, 800)
            wide = browser.run("return [document.documentElement.scrollWidth, document.documentElement.clientWidth]")
            check(wide[0] <= wide[1], f"a page of {wide[0]} in a window of {wide[1]}")
            if pictures:
                browser.picture(f"{pictures}/{theme}-{width}.png")
    check(colours[0] != colours[1], "dark and light look alike")
    browser.run("document.getElementById('beam_size').value = 99; document.getElementById('beam_size').dispatchEvent(new Event('change'))")
    until(browser, "return document.getElementById('state').classList.contains('problem')", True)
    loaded = browser.run("return performance.getEntriesByType('resource').map((each) => new URL(each.name).origin)")
    check(set(loaded) == {f"http://127.0.0.1:{server.port}"}, f"the page loads {set(loaded)}")


def main():
    driver, binary = sys.argv[1:3]
    with open("token", "w", encoding="ascii") as file:
        file.write(TOKEN)
    browser = Browser(driver, binary)
    try:
        with Server("--threads", "1", "--token-file", "token", "--model", "second=run") as server:
            browser.size(1280, 800)
            browser.theme("light")
            browser.call("/url", {"url": f"http://127.0.0.1:{server.port}/"})
            check_page(browser, server, sys.argv[3] if len(sys.argv) > 3 else "")
            # A refused request is shown, and logged by the browser; nothing else is.
            messages = [message for message in browser.messages() if "status of 4" not in message]
            check(not messages, f"the console has {messages}")
            server.stop()
    finally:
        browser.close()
    print("done")


if __name__ == "__main__":
    main()
