// The page's data and the small functions that all its parts share. Text from the data only ever becomes text nodes
// and attribute values: nothing is parsed as HTML.
const page = JSON.parse(document.getElementById('heddle-data').textContent);
const svg_namespace = 'http://www.w3.org/2000/svg';

/** Sets attributes (functions become listeners of the event) and appends children; strings become text nodes. */
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') {
      node.addEventListener(name, value);
    } else if (value !== undefined && value !== null && value !== false) {
      node.setAttribute(name, value === true ? '' : String(value));
    }
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

function html(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function shape(name, attributes = {}, ...children) {
  return fill(document.createElementNS(svg_namespace, name), attributes, children);
}

/** A number in at most five digits. */
function number_text(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) {
    return '–';
  }
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e7 || size < 1e-3)) {
    return value.toExponential(2).replace(/\.?0+e/, 'e').replace('e+', 'e');
  }
  if (Number.isInteger(value)) {
    return grouped(value);
  }
  return size >= 1000 ? grouped(Math.round(value)) : String(Number(value.toPrecision(4)));
}

/** 12,345 */
function grouped(integer) {
  return String(integer).replace(/\B(?=(\d{3})+(?!\d))/g, ',');
}

function bytes_text(bytes) {
  const units = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let unit = 0;
  while (bytes >= 1024 && unit + 1 < units.length) {
    bytes /= 1024;
    ++unit;
  }
  return `${unit === 0 ? bytes : Number(bytes.toPrecision(3))} ${units[unit]}`;
}

/** SentencePiece's piece as a reader expects it: its word start becomes a low line. */
function piece_text(piece) {
  return piece.replaceAll('\u2581', '_') || '·';
}

/** A text whose lines may end after the separators of paths and keys, so that a narrow box breaks no word and no number. */
function breakable(text) {
  return String(text).split(/(?<=[/_])(?=[^/_])|(?<=\.)(?=[A-Za-z_])/).flatMap((part, index) => (index > 0 ? [html('wbr'), part] : [part]));
}

function shortened(text, max) {
  const letters = Array.from(text);
  return letters.length > max ? letters.slice(0, max - 1).join('') + '…' : text;
}

/** The matrix that matrix_to_json wrote: {rows, columns, min, max, values: Float64Array}. */
function decoded(matrix) {
  const bytes = atob(matrix.values);
  const values = new Float64Array(bytes.length / 2);
  const step = (matrix.max - matrix.min) / 65535;
  for (let i = 0; i < values.length; ++i) {
    values[i] = matrix.min + step * (bytes.charCodeAt(2 * i) + 256 * bytes.charCodeAt(2 * i + 1));
  }
  return {...matrix, values};
}

/** A section of the page with an entry in its contents. `of` names the run in the title where it shows only one. */
function section(id, title, lead, of = '') {
  document.getElementById('contents').append(html('a', {href: `#${id}`}, title));
  const node = html('section', {id, 'aria-label': title + of}, html('h2', {}, title + of), lead ? html('p', {class: 'lead'}, lead) : null);
  document.getElementById('main').append(node);
  return node;
}

function card(title, ...children) {
  return html('div', {class: 'card'}, title ? html('h3', {}, title) : null, ...children);
}

function note(text) {
  return html('p', {class: 'note'}, text);
}

function plain_table(heads, rows, number_columns = []) {
  const cell = (name, text, column) => html(name, {class: number_columns.includes(column) ? 'number' : null}, ...breakable(text));
  return html('div', {class: 'scroll'}, html('table', {class: 'plain'},
    html('thead', {}, html('tr', {}, ...heads.map((head, column) => cell('th', head, column)))),
    html('tbody', {}, ...rows.map((row) => html('tr', {}, ...row.map((text, column) => cell('td', text, column)))))));
}

/** A labelled menu; `chosen` is called with the index of the choice, also at once with 0. */
function menu(label, names, chosen) {
  const select = html('select', {change: () => chosen(select.selectedIndex)},
    ...names.map((name) => html('option', {}, name)));
  chosen(0);
  return html('label', {}, `${label} `, select);
}

/** The move [down, right] of an arrow key, whose usual effect is then suppressed; undefined for other keys. */
function arrow_move(event) {
  const move = {ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0]}[event.key];
  if (move) {
    event.preventDefault();
  }
  return move;
}

/** Makes rows of buttons one group of which one is chosen, at first the first; arrow keys move between them. */
function radio_buttons(rows, chosen) {
  function choose(row, column, focus = false) {
    rows.forEach((buttons, r) => buttons.forEach((button, c) => {
      button.setAttribute('aria-checked', String(r === row && c === column));
      button.tabIndex = r === row && c === column ? 0 : -1;
    }));
    if (focus) {
      rows[row][column].focus();
    }
    chosen(row, column);
  }
  rows.forEach((buttons, row) => buttons.forEach((button, column) => fill(button, {
    type: 'button', role: 'radio', click: () => choose(row, column),
    keydown: (event) => {
      const move = arrow_move(event);
      if (move) {
        const [down, right] = rows.length > 1 ? move : [0, move[0] + move[1]];
        const next = (row + down + rows.length) % rows.length;
        const count = rows[next].length;
        choose(next, (Math.min(column, count - 1) + right + count) % count, true);
      }
    },
  }, [])));
  choose(0, 0);
}

/** Buttons of which one is pressed; `chosen` is called with the index of the choice, also at once with 0. */
function choices(label, names, chosen) {
  const buttons = names.map((name) => html('button', {}, name));
  if (names.length > 0) {
    radio_buttons([buttons], (_, index) => chosen(index));
  }
  return html('div', {class: 'controls', role: 'radiogroup', 'aria-label': label}, ...buttons);
}

/** Labels with values: `facts` are [label, text], or null for those that are unknown. */
function facts_list(facts) {
  return html('dl', {class: 'facts'}, ...facts.filter(Boolean).map(
    ([label, text]) => html('div', {class: String(text).length > 30 ? 'long' : null}, html('dt', {}, label), html('dd', {}, ...breakable(text)))));
}

/** Names with their colours, dashed as a curve may be; `mark` is the class of the coloured mark. */
function legend(entries, mark = '') {
  return html('div', {class: 'legend'}, ...entries.map(([name, colour, dashed]) => {
    const sample = html('i', {class: dashed ? 'dashed' : mark});
    sample.style.background = colour;
    return html('span', {}, sample, name);
  }));
}

/** A row with a name, a bar of `share` of the width, and a text after it. */
function bar_row(attributes, name, share, text, colour = series_colour(0)) {
  const bar = html('i');
  bar.style.width = `${100 * Math.max(share, 0)}%`;
  bar.style.background = colour;
  return html('div', {class: 'bar', ...attributes}, html('span', {title: name}, name), html('div', {}, bar), html('span', {}, text));
}

/**
 * A line that says what a box that scrolls sideways does not show: describe(from, to) for the pixels in view. It is empty
 * while all is in view. The box fades out where it is cut.
 */
function cut_note(box, describe) {
  const line = html('p', {class: 'cut'});
  const show = () => {
    const end = box.scrollLeft + box.clientWidth;
    const [left, right] = [box.scrollLeft > 1, end < box.scrollWidth - 1];
    box.classList.toggle('cut-left', left);
    box.classList.toggle('cut-right', right);
    line.textContent = left || right ? describe(box.scrollLeft, end) : '';
  };
  box.addEventListener('scroll', show);
  new ResizeObserver(show).observe(box);
  return line;
}

/** Calls draw(width) now and whenever the node's width changes. */
function drawn_to_width(node, draw) {
  let last = 0;
  new ResizeObserver(() => {
    const width = Math.floor(node.clientWidth);
    if (width > 0 && width !== last) {
      last = width;
      draw(width);
    }
  }).observe(node);
}

/** The number of colours; further curves have the same colours, dashed. */
const colours = 8;

function series_colour(index) {
  return `var(--series-${index % colours + 1})`;
}
