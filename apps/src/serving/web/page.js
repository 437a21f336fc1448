'use strict';

/** The time without typing after which a text is sent, in milliseconds. */
const pause = 250;
const choices = ['model', 'adapter', 'source_language', 'target_language'];
const at = (id) => document.getElementById(id);

let models = [];
let token = '';
let timer = 0;
let running = null;  // an AbortController: the request whose answer is shown

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function say(text, problem = false) {
  at('state').textContent = text;
  at('state').classList.toggle('problem', problem);
}

async function ask(path, options = {}) {
  const headers = {...options.headers, ...(token && {Authorization: `Bearer ${token}`})};
  const answer = await fetch(path, {...options, headers});
  at('access').hidden = answer.status !== 401 && at('access').hidden;
  if (!answer.ok) {
    throw new Error((await answer.json().catch(() => ({}))).error ?? `status ${answer.status}`);
  }
  at('access').hidden = true;
  return answer;
}

/** Fills a list of choices; it is shown if there is something to choose. */
function offer(id, names, shown = names.length > 0, text_of = (name) => name || 'none') {
  const before = at(id).value;
  at(id).replaceChildren(...names.map((name) => element('option', {value: name, textContent: text_of(name)})));
  if (names.includes(before)) {
    at(id).value = before;
  }
  at(id).parentElement.hidden = !shown;
}

/** The run of a model, with the name under which it is served if the server's user chose one. */
function model_text(name) {
  const {run} = models.find((model) => model.name === name);
  return name === 'default' || name === run ? run : `${name} (${run})`;
}

function offer_of_model() {
  const model = models.find((each) => each.name === at('model').value);
  offer('adapter', ['', ...model.adapters], model.adapters.length > 0);
  offer('source_language', model.source_languages);
  offer('target_language', model.target_languages);
}

async function load_models() {
  try {
    const answer = await (await ask('/v1/models')).json();
    models = answer.models;
    at('beam_size').max = at('n_best').max = answer.max_beam_size;
    at('beam_size').placeholder = Math.min(5, answer.max_beam_size);
    offer('model', models.map((model) => model.name), true, model_text);
    offer_of_model();
    say('');
    document.documentElement.dataset.ready = 'true';
  } catch (problem) {
    say(problem.message, true);
  }
}

/** The events of a stream (text/event-stream), as [name, data]. */
async function* events_of(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    text += part.value;
    const blocks = text.split('\n\n');
    text = blocks.pop();
    for (const block of blocks) {
      const [, name, data] = block.match(/^event: (.*)\ndata: (.*)$/);
      yield [name, JSON.parse(data)];
    }
  }
}

/** A span for each word of a text, with white space between them: what the server counts as words. */
function words_of(text) {
  const space = /[\t-\r\x1c- \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/;
  const words = text.split(space).filter(Boolean).map((word) => element('span', {className: 'word', textContent: word}));
  return {words, nodes: words.flatMap((word) => [word, ' '])};
}

/**
 * Underlines aligned words in one colour, of the source word, and marks those of a word while the pointer is on it; a
 * finger leaves them marked.
 */
function mark_aligned(source, target, alignment) {
  const pairs = alignment.map(([from, to]) => [source[from], target[to]]).filter(([from, to]) => from && to);
  for (const [from, to] of pairs) {
    const hue = source.indexOf(from) * 137.5 % 360;
    for (const word of [from, to].filter((each) => !each.classList.contains('linked'))) {
      word.classList.add('linked');
      word.style.setProperty('--hue', hue);
    }
  }
  const clear = () => document.querySelectorAll('.aligned').forEach((each) => each.classList.remove('aligned'));
  for (const word of [...source, ...target]) {
    const aligned = pairs.filter((pair) => pair.includes(word)).flat();
    word.addEventListener('pointerenter', () => {
      clear();
      aligned.forEach((each) => each.classList.add('aligned'));
    });
    word.addEventListener('pointerleave', (event) => event.pointerType !== 'touch' && clear());
  }
}

function show_list(line, translations) {
  const source = words_of(line.text);
  const items = translations.map(({text, score, alignment}) => {
    const target = words_of(text);
    mark_aligned(source.words, target.words, alignment ?? []);
    return element('li', {}, element('span', {className: 'score', textContent: score.toFixed(3)}), ...target.nodes);
  });
  at('hint').hidden = at('hint').hidden && !translations.some(({alignment}) => alignment?.length > 0);
  at(`list-${line.index}`).replaceChildren(
    element('div', {className: 'list'}, element('h2', {}, ...source.nodes), element('ol', {}, ...items)));
}

function show(name, data, lines) {
  if (name === 'error') {
    throw new Error(data.error);
  }
  const line = lines[data.index];
  if (!line) {
    return;
  }
  const target = at(`target-${line.index}`);
  target.textContent = name === 'growing' ? data.text : data.translations[0].text;
  target.classList.toggle('growing', name === 'growing');
  if (name === 'result') {
    show_list(line, data.translations);
  }
}

function request_of(lines) {
  const request = {texts: lines.map((line) => line.text), scores: true, alignments: true, stream: true};
  for (const id of choices) {
    if (at(id).value && !at(id).parentElement.hidden) {
      request[id] = at(id).value;
    }
  }
  if (at('beam_size').value) { // else the server's own
    request.beam_size = Math.max(1, Math.trunc(Number(at('beam_size').value)));
  }
  request.n_best = Math.min(request.beam_size || Number(at('beam_size').placeholder), Math.max(1, Math.trunc(Number(at('n_best').value))));
  return request;
}

/** Translates the text, in place of the request that runs. */
async function translate() {
  running?.abort();
  running = new AbortController();
  const mine = running;
  const all = at('source').value.split('\n');
  at('target').replaceChildren(...all.map((_, index) => element('p', {id: `target-${index}`})));
  at('lists').replaceChildren(...all.map((_, index) => element('div', {id: `list-${index}`})));
  at('hint').hidden = true;
  const lines = all.map((text, index) => ({text, index})).filter((line) => line.text.trim());
  if (lines.length === 0) {
    say('');
    return;
  }
  const began = performance.now();
  try {
    const headers = {'Content-Type': 'application/json'};
    const options = {method: 'POST', headers, body: JSON.stringify(request_of(lines)), signal: mine.signal};
    for await (const [name, data] of events_of(await ask('/v1/translate', options))) {
      if (mine !== running) {
        return;
      }
      show(name, data, lines);
    }
    say(`${((performance.now() - began) / 1000).toFixed(2)} s`);
  } catch (problem) {
    if (problem.name !== 'AbortError' && mine === running) {
      say(problem.message, true);
    }
  }
}

function translate_soon() {
  clearTimeout(timer);
  timer = setTimeout(translate, pause);
}

at('source').addEventListener('input', translate_soon);
for (const id of [...choices, 'beam_size', 'n_best']) {
  at(id).addEventListener('change', () => {
    if (id === 'model') {
      offer_of_model();
    }
    translate_soon();
  });
}
at('access').addEventListener('submit', (event) => {
  event.preventDefault();
  token = at('token').value;
  load_models().then(translate);
});
load_models();
