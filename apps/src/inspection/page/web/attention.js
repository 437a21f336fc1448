// Every head's attention: small pictures to choose from, and the chosen one with its tokens and its entropy.

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

/** The mean of matrices of one shape. */
function mean_matrix(matrices) {
  const [{rows, columns}] = matrices;
  return {rows, columns, values: Float64Array.from({length: rows * columns}, (_, i) => matrices.reduce((sum, each) => sum + each.values[i], 0) / matrices.length)};
}

/** The mean over the rows of a matrix of weights of the entropy of a row, in bits: 0 where one key has all. */
function entropy_bits({rows, values}) {
  return values.reduce((sum, weight) => (weight > 0 ? sum - weight * Math.log2(weight) : sum), 0) / rows;
}

/** "decoder.layers.3.cross_attention" → {stack, layer, sublayer} */
function sublayer_place(path) {
  const match = /^([^.]+)\.layers\.(\d+)\.(.+)$/.exec(path);
  return match ? {stack: match[1], layer: Number(match[2]) + 1, sublayer: match[3].replace(/_attention$/, '-attention').replaceAll('_', ' ')} : {stack: path, layer: 1, sublayer: ''};
}

/** "decoder.layers.0.cross_attention" → "decoder 1 cross-attention": as in configurations, layers count from 1. */
function sublayer_name(path) {
  const {stack, layer, sublayer} = sublayer_place(path);
  return sublayer === '' ? path : `${stack} ${layer} ${sublayer}`;
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
    + 'computed in float64 from the checkpoint’s queries and keys. The number below a head is its entropy in bits, the mean over the queries: '
    + '0 where each query reads one key, log₂ n where it reads n keys alike. Choose a head, or the mean over all; arrow keys move from head to head, and in the large map from cell to cell.', of_run(0));
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
    const large = html('div', {class: 'card fitted', id: 'head'});
    // Self-attention first: in the order of the layers, cross-attention last.
    const is_cross = (name) => kinds.get(name)[0].queries !== kinds.get(name)[0].keys;
    const names = [...kinds.keys()].sort((a, b) => is_cross(a) - is_cross(b));
    holder.replaceChildren(choices('Kind of attention', names, (index) => show_heads(sentence, kinds.get(names[index]), heads, large)),
      html('div', {class: 'attention'}, heads, large));
  }
}

/** The table of small pictures: a row for each layer, a column for each head, and one for the mean over heads. */
function show_heads(sentence, sublayers, holder, large) {
  const matrices = sublayers.map(head_matrices).map((heads) => (heads.length > 1 ? [...heads, mean_matrix(heads)] : heads));
  const layers = sublayers.map((attention) => sublayer_place(attention.path).layer);
  const name_of = (row, index) => (index < sublayers[row].heads ? `head ${index + 1}` : 'mean over heads');
  const buttons = matrices.map((maps, row) => maps.map((matrix, index) => {
    const canvas = html('canvas');
    paint_matrix(canvas, matrix, weight_share);
    return html('button', {class: 'head', 'aria-label': `layer ${layers[row]}, ${name_of(row, index)}`}, canvas);
  }));
  const most = Math.max(...sublayers.map((attention) => attention.heads));
  const numbers = Array.from({length: most}, (_, head) => html('th', {scope: 'col'}, String(head + 1)));
  const cell = (row) => (button, index) => html('td', {}, button, html('span', {class: 'entropy'}, entropy_bits(matrices[row][index]).toFixed(2)));
  const rows = buttons.map((maps, row) => {
    const cells = maps.map(cell(row));
    const empty = Array.from({length: most - sublayers[row].heads}, () => html('td'));
    const {heads} = sublayers[row];
    return html('tr', {}, html('th', {scope: 'row'}, `layer ${layers[row]}`), ...cells.slice(0, heads), ...empty, ...cells.slice(heads));
  });
  if (most > 1) {
    numbers.push(html('th', {scope: 'col'}, 'mean'));
  }
  holder.replaceChildren(html('h3', {}, 'Heads'), html('div', {class: 'scroll'}, html('table', {class: 'heads', role: 'radiogroup', 'aria-label': 'Heads'},
    html('thead', {}, html('tr', {}, html('th'), ...numbers)), html('tbody', {}, ...rows))));
  radio_buttons(buttons, (row, head) => show_head(sentence, sublayers[row], {matrix: matrices[row][head], name: name_of(row, head)}, large));
}

function show_head(sentence, attention, {matrix, name}, holder) {
  const queries = sentence[attention.queries].map(piece_text);
  const keys = sentence[attention.keys].map(piece_text);
  const {layer, stack, sublayer} = sublayer_place(attention.path);
  holder.dataset.path = attention.path;
  holder.dataset.shown = name;
  holder.dataset.entropy = entropy_bits(matrix);
  const map = heat_map({
    title: `${sublayer_name(attention.path)}, ${name}`, matrix, rows: queries, columns: keys, share_of: weight_share, max_cell: 38, min_cell: 9,
    describe: (row, column, value) => `${queries[row]} (${row + 1}) takes ${(100 * value).toFixed(2)} % from ${keys[column]} (${column + 1})`,
  });
  holder.replaceChildren(html('h3', {}, `${stack} layer ${layer}, ${sublayer}, ${name}`),
    html('p', {class: 'lead'}, `entropy ${entropy_bits(matrix).toFixed(3)} bits of at most ${Math.log2(matrix.columns).toFixed(3)}, the mean over ${grouped(matrix.rows)} queries`),
    map, ramp_legend(0, 1, weight_share));
}
