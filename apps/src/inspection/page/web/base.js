// The page's data and the small functions that all its parts share. Text from the data only ever becomes text nodes
// and attribute values: nothing is parsed as HTML.
const page = JSON.parse(document.getElementById('heddle-data').textContent);
const svg_namespace = 'http://www.w3.org/2000/svg';

/** Sets attributes (functions become listeners of the event) and appends children; texts become text nodes. */
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
    return value.toExponential(2).replace('e+', 'e');
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

function shortened(text, most) {
  const letters = Array.from(text);
  return letters.length > most ? letters.slice(0, most - 1).join('') + '…' : text;
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
  const cell = (name, text, column) => html(name, {class: number_columns.includes(column) ? 'number' : null}, String(text));
  return html('div', {class: 'scroll'}, html('table', {class: 'plain'},
    html('thead', {}, html('tr', {}, ...heads.map((head, column) => cell('th', head, column)))),
    html('tbody', {}, ...rows.map((row) => html('tr', {}, ...row.map((text, column) => cell('td', text, column)))))));
}

/** A labelled menu; `chosen` is called with the index of the choice, also at once with 0. */
function menu(label, names, chosen) {
  const select = html('select', {change: () => chosen(select.selectedIndex)},
    ...names.map((name) => html('option', {}, name)));
  return html('label', {}, `${label} `, select);
}

/** Buttons of which one is pressed; arrow keys move between them. */
function choices(label, names, chosen) {
  const buttons = names.map((name, index) => html('button', {
    type: 'button', role: 'radio', 'aria-checked': index === 0, tabindex: index === 0 ? 0 : -1,
    click: () => choose(index),
    keydown: (event) => {
      const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
      if (step) {
        event.preventDefault();
        choose((index + step + buttons.length) % buttons.length, true);
      }
    },
  }, name));
  function choose(index, focus = false) {
    buttons.forEach((button, other) => {
      button.setAttribute('aria-checked', String(other === index));
      button.tabIndex = other === index ? 0 : -1;
    });
    if (focus) {
      buttons[index].focus();
    }
    chosen(index);
  }
  buttons.forEach((button, index) => button.setAttribute('aria-checked', String(index === 0)));
  return html('div', {class: 'controls', role: 'radiogroup', 'aria-label': label}, ...buttons);
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

function series_colour(index) {
  return `var(--series-${index % 8 + 1})`;
}
