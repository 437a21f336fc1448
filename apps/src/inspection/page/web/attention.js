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
  return match ? {stack: match[1], layer: Number(match[2]) + 1, sublayer: match[3].replaceAll('_', ' ')} : {stack: path, layer: 1, sublayer: ''};
}

/** A sentence in the menus of sections. */
function sentence_title(sentence) {
  return shortened((sentence.source.length > 0 ? sentence.source : sentence.target).map(piece_text).join(' '), 60);
}

function show_attention() {
  const sentences = page.model && page.model.sentences || [];
  if (sentences.length === 0) {
    return;
  }
  const node = section('attention', 'Attention', 'How much each query (row) takes from each key (column), for every head; '
    + 'computed in float64 from the checkpoint’s queries and keys. Choose a head; arrow keys move from head to head, and in the large map from cell to cell.', of_first_run());
  const holder = html('div');
  node.append(html('div', {class: 'controls'}, menu('Sentence', sentences.map(sentence_title), (index) => show_sentence(sentences[index]))), holder);

  function show_sentence(sentence) {
    const kinds = new Map();
    for (const attention of sentence.attention) {
      const {stack, sublayer} = sublayer_place(attention.path);
      const name = `${stack} ${sublayer}${attention.mask === 'bidirectional' ? '' : `, ${attention.mask}`}`;
      kinds.set(name, [...(kinds.get(name) || []), attention]);
    }
    const heads = html('div', {class: 'card'});
    const large = html('div', {class: 'card', id: 'head'});
    const names = [...kinds.keys()];
    holder.replaceChildren(choices('Kind of attention', names, (index) => show_heads(sentence, kinds.get(names[index]), heads, large)),
      html('div', {class: 'attention'}, heads, large));
  }
}

/** The table of small pictures: a row for each layer, a column for each head. */
function show_heads(sentence, sublayers, holder, large) {
  const matrices = sublayers.map(head_matrices);
  const layers = sublayers.map((attention) => sublayer_place(attention.path).layer);
  const buttons = matrices.map((heads, row) => heads.map((matrix, head) => {
    const canvas = html('canvas');
    paint_matrix(canvas, matrix, weight_share);
    return html('button', {class: 'head', 'aria-label': `layer ${layers[row]}, head ${head + 1}`}, canvas);
  }));
  const numbers = Array.from({length: Math.max(...matrices.map((heads) => heads.length))}, (_, head) => html('th', {scope: 'col'}, String(head + 1)));
  const rows = buttons.map((heads, row) => html('tr', {}, html('th', {scope: 'row'}, `layer ${layers[row]}`), ...heads.map((button) => html('td', {}, button))));
  holder.replaceChildren(html('h3', {}, 'Heads'), html('div', {class: 'scroll'}, html('table', {class: 'heads', role: 'radiogroup', 'aria-label': 'Heads'},
    html('thead', {}, html('tr', {}, html('th'), ...numbers)), html('tbody', {}, ...rows))));
  radio_buttons(buttons, (row, head) => show_head(sentence, sublayers[row], matrices[row][head], head, large));
}

function show_head(sentence, attention, matrix, head, holder) {
  const queries = sentence[attention.queries].map(piece_text);
  const keys = sentence[attention.keys].map(piece_text);
  const {layer, stack, sublayer} = sublayer_place(attention.path);
  holder.dataset.path = attention.path;
  holder.dataset.headNumber = head;
  holder.replaceChildren(
    html('h3', {}, `${stack} layer ${layer}, ${sublayer}, head ${head + 1}`),
    heat_map({
      title: `${attention.path}, head ${head + 1}`, matrix, rows: queries, columns: keys, share_of: weight_share, max_cell: 30, min_cell: 9,
      describe: (row, column, value) => `${queries[row]} (${row + 1}) takes ${(100 * value).toFixed(2)} % from ${keys[column]} (${column + 1})`,
    }),
    ramp_legend(0, 1, weight_share));
}
