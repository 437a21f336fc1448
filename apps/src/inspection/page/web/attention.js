// Every head's attention: small pictures to choose from, and the chosen one with its tokens.

/** Weights are drawn brighter than they are, so that small ones are seen. */
const weight_share = (weight) => Math.max(weight, 0) ** 0.6;

/** The heads of one sublayer as matrices [queries, keys]. */
function head_matrices(attention) {
  const all = decoded(attention.matrix);
  const rows = all.rows / attention.heads;
  return Array.from({length: attention.heads}, (_, head) => ({
    rows, columns: all.columns, values: all.values.subarray(head * rows * all.columns, (head + 1) * rows * all.columns),
  }));
}

/** "decoder.layers.3.cross_attention" → {stack, layer, sublayer} */
function sublayer_place(path) {
  const match = /^([^.]+)\.layers\.(\d+)\.(.+)$/.exec(path);
  return match ? {stack: match[1], layer: Number(match[2]), sublayer: match[3]} : {stack: path, layer: 0, sublayer: ''};
}

function show_attention() {
  const sentences = page.model && page.model.sentences || [];
  if (sentences.length === 0) {
    return;
  }
  const node = section('attention', 'Attention', 'How much each query (row) takes from each key (column), for every head; '
    + 'computed in float64 from the checkpoint’s queries and keys. Choose a head; arrow keys move from head to head, and in the large map from cell to cell.', of_first_run());
  const holder = html('div');
  const title = (sentence) => shortened((sentence.source.length > 0 ? sentence.source : sentence.target).map(piece_text).join(' '), 60);
  node.append(html('div', {class: 'controls'}, menu('Sentence', sentences.map(title), (index) => show_sentence(sentences[index]))), holder);

  function show_sentence(sentence) {
    const kinds = new Map();
    for (const attention of sentence.attention) {
      const {stack, sublayer} = sublayer_place(attention.path);
      const name = `${stack} ${sublayer.replaceAll('_', ' ')}${attention.mask.startsWith('bidirectional') ? '' : `, ${attention.mask}`}`;
      kinds.set(name, [...(kinds.get(name) || []), attention]);
    }
    const heads = html('div', {class: 'card'});
    const large = html('div', {class: 'card', id: 'head'});
    const names = [...kinds.keys()];
    const show_kind = (index) => show_heads(sentence, kinds.get(names[index]), heads, large);
    holder.replaceChildren(choices('Kind of attention', names, show_kind), html('div', {class: 'attention'}, heads, large));
    show_kind(0);
  }
  show_sentence(sentences[0]);
}

/** The table of small pictures: a row for each layer, a column for each head. */
function show_heads(sentence, sublayers, holder, large) {
  const buttons = [];
  const rows = sublayers.map((attention, row) => {
    const {layer} = sublayer_place(attention.path);
    buttons.push([]);
    return html('tr', {}, html('th', {scope: 'row'}, `layer ${layer + 1}`), ...head_matrices(attention).map((matrix, head) => {
      const canvas = html('canvas');
      paint_matrix(canvas, matrix, weight_share);
      const button = html('button', {
        type: 'button', class: 'head', role: 'radio', 'aria-label': `layer ${layer + 1}, head ${head + 1}`,
        click: () => choose(row, head), keydown: (event) => move(event, row, head),
      }, canvas);
      buttons[row].push({button, matrix, attention, head});
      return html('td', {}, button);
    }));
  });
  function choose(row, head, focus = false) {
    buttons.flat().forEach(({button}) => {
      button.setAttribute('aria-checked', 'false');
      button.tabIndex = -1;
    });
    const chosen = buttons[row][head];
    chosen.button.setAttribute('aria-checked', 'true');
    chosen.button.tabIndex = 0;
    if (focus) {
      chosen.button.focus();
    }
    show_head(sentence, chosen, large);
  }
  function move(event, row, head) {
    const step = {ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0]}[event.key];
    if (step) {
      event.preventDefault();
      const next = (row + step[0] + buttons.length) % buttons.length;
      choose(next, (Math.min(head, buttons[next].length - 1) + step[1] + buttons[next].length) % buttons[next].length, true);
    }
  }
  const numbers = Array.from({length: Math.max(...buttons.map((row) => row.length))}, (_, head) => html('th', {scope: 'col'}, String(head + 1)));
  holder.replaceChildren(html('h3', {}, 'Heads'), html('div', {class: 'scroll'}, html('table', {class: 'heads', role: 'radiogroup', 'aria-label': 'Heads'},
    html('thead', {}, html('tr', {}, html('th'), ...numbers)), html('tbody', {}, ...rows))));
  choose(0, 0);
}

function show_head(sentence, {matrix, attention, head}, holder) {
  const queries = sentence[attention.queries].map(piece_text);
  const keys = sentence[attention.keys].map(piece_text);
  const {layer, stack, sublayer} = sublayer_place(attention.path);
  holder.dataset.path = attention.path;
  holder.dataset.headNumber = head;
  holder.replaceChildren(
    html('h3', {}, `${stack} layer ${layer + 1}, ${sublayer.replaceAll('_', ' ')}, head ${head + 1}`),
    heat_map({
      title: `${attention.path}, head ${head + 1}`, matrix, rows: queries, columns: keys, share_of: weight_share, most_cell: 30, least_cell: 9,
      describe: (row, column, value) => `${queries[row]} (${row + 1}) takes ${(100 * value).toFixed(2)} % from ${keys[column]} (${column + 1})`,
    }),
    ramp_legend(0, 1, weight_share));
}
