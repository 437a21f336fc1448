// The content of a checkpoint: positions, neighbours of words, and norms by layer.

function show_positions() {
  const all = page.model && page.model.positions || [];
  if (all.length === 0) {
    return;
  }
  const node = section('positions', 'Positions', 'The positional encodings that the model computes with, as a map and as waves.', of_first_run());
  all.forEach((encoding) => node.append(...position_cards(encoding)));
}

function position_cards(encoding) {
  const matrix = decoded(encoding.matrix);
  const share_of = (value) => value / (Math.max(Math.abs(matrix.min), Math.abs(matrix.max)) || 1);
  const canvas = html('canvas', {class: 'matrix', 'aria-label': `${encoding.kind} positions`, 'data-positions': encoding.kind});
  const readout = html('div', {class: 'readout'});
  const bias = encoding.row_name === 'head';
  canvas.style.height = `${Math.min(Math.max(matrix.rows * (bias ? 18 : 2.2), 90), 300)}px`;
  canvas.addEventListener('pointermove', (event) => {
    const box = canvas.getBoundingClientRect();
    const row = Math.min(Math.floor((event.clientY - box.top) / box.height * matrix.rows), matrix.rows - 1);
    const column = Math.min(Math.floor((event.clientX - box.left) / box.width * matrix.columns), matrix.columns - 1);
    readout.textContent = `${encoding.row_name} ${row + (bias ? 1 : 0)}, ${encoding.column_name} ${column + encoding.first_column}: ${number_text(matrix.values[row * matrix.columns + column])}`;
  });
  paint_matrix(canvas, matrix, share_of);
  // A wave for each head over the distance, or for some columns over the position.
  const indices = (count, most) => Array.from({length: Math.min(count, most)}, (_, i) => Math.floor(i * count / Math.min(count, most)));
  const series = bias
    ? indices(matrix.rows, 8).map((row) => ({
      name: `head ${row + 1}`, steps: indices(matrix.columns, matrix.columns).map((column) => column + encoding.first_column),
      values: Array.from(matrix.values.subarray(row * matrix.columns, (row + 1) * matrix.columns)),
    }))
    : indices(matrix.columns, 6).map((column) => ({
      name: `${encoding.column_name} ${column}`, steps: indices(matrix.rows, matrix.rows),
      values: indices(matrix.rows, matrix.rows).map((row) => matrix.values[row * matrix.columns + column]),
    }));
  return [html('div', {class: 'grid wide', style: 'margin-bottom: 0.9rem'},
    card(`${encoding.kind.replaceAll('_', ' ')}: ${encoding.name}`, html('p', {class: 'lead'}, encoding.note), canvas,
      html('p', {class: 'axis-note'}, `down: ${encoding.row_name}; across: ${encoding.column_name}`), ramp_legend(matrix.min, matrix.max, share_of), readout),
    line_chart({title: 'Waves', series, height: 240, x_name: bias ? 'distance' : 'position', plain: true}))];
}

function show_embeddings() {
  const tables = (page.embeddings || []).filter((table) => table.words.length > 0);
  if (tables.length === 0) {
    return;
  }
  const node = section('embeddings', 'Embeddings', 'The pieces of the vocabulary whose embeddings point most in the direction of a word’s (the mean of its pieces), by the cosine of the angle.', of_first_run());
  for (const table of tables) {
    const holder = html('div');
    const show = (index) => {
      const {word, pieces, neighbours} = table.words[index];
      holder.replaceChildren(html('p', {class: 'lead'}, pieces.length > 1 ? `“${word}” is ${pieces.length} pieces: ${pieces.map(piece_text).join(' ')}` : `“${word}” is the piece ${pieces.map(piece_text).join('')}`),
        ...neighbours.map(([piece, cosine]) => {
          const bar = html('i');
          bar.style.width = `${Math.max(cosine, 0) * 100}%`;
          return html('div', {class: 'bar', 'data-piece': piece, 'data-cosine': cosine}, html('span', {title: piece_text(piece)}, piece_text(piece)), html('div', {}, bar), html('span', {}, cosine.toFixed(3)));
        }), neighbours.length === 0 ? html('p', {class: 'lead'}, 'No neighbours: the word has no embedding.') : '');
    };
    node.append(card(table.table, choices('Words', table.words.map((each) => each.word), show), holder));
    show(0);
  }
}

/** An order for names: what stands outside of layers first, the encoder before the decoder, layers by their numbers. */
function place_order(name) {
  const {group, rest} = parameter_place(name);
  const match = /^(.+) (\d+)$/.exec(group);
  const rank = (list, text) => (list.indexOf(text) + list.length + 1) % (list.length + 1);
  const stack = rest === '' || !match ? -1 : rank(['encoder', 'decoder'], match[1]);
  return [stack, rest === '' || !match ? 0 : Number(match[2]), rank(['self_attention', 'cross_attention', 'feed_forward'], rest.split('.')[0])];
}

function in_place_order(norms) {
  return norms.map((each) => ({each, order: place_order(each.name)}))
    .sort((a, b) => a.order[0] - b.order[0] || a.order[1] - b.order[1] || a.order[2] - b.order[2] || a.each.name.localeCompare(b.each.name))
    .map(({each}) => each);
}

/** "encoder.layers.0.self_attention.q.weight" → the layer "encoder 1" and the rest. */
function parameter_place(name) {
  const match = /^([^.]+)\.layers\.(\d+)\.(.+)$/.exec(name);
  return match ? {group: `${match[1]} ${Number(match[2]) + 1}`, rest: match[3]} : {group: name.replace(/\.(weight|bias)$/, ''), rest: ''};
}

const norm_quantities = [
  {name: 'root mean square', value: (each) => each.norm / Math.sqrt(each.elements)},
  {name: 'norm', value: (each) => each.norm},
  {name: 'max', value: (each) => each.max},
  {name: 'last update / value', value: (each) => (each.update === undefined || each.norm === 0 ? NaN : each.update / each.norm)},
];

function show_norms() {
  const runs = (page.runs || []).filter((run) => run.norms).map((run) => ({...run, norms: in_place_order(run.norms)}));
  if (runs.length === 0) {
    return;
  }
  const node = section('norms', 'Norms', 'The sizes of parameters and of their last update, which Adam’s moments give. By layer: the square root of the sum of squares of all its parameters.');
  const groups = [...new Set(runs[0].norms.map((each) => parameter_place(each.name).group))];
  const total = (run, group, key) => {
    const squares = run.norms.filter((each) => parameter_place(each.name).group === group && each[key] !== undefined).map((each) => each[key] ** 2);
    return squares.length > 0 ? Math.sqrt(squares.reduce((sum, each) => sum + each, 0)) : null;
  };
  const bars = (title, key) => card(title, norm_bars(groups, runs.map((run) => groups.map((group) => total(run, group, key))), title));
  const updates = runs.some((run) => run.norms.some((each) => each.update !== undefined));
  node.append(html('div', {class: 'grid wide'}, bars('Parameters by layer', 'norm'), updates ? bars('Last update by layer', 'update') : null));
  if (runs.length > 1) {
    node.append(html('div', {class: 'legend'}, ...runs.map((run, index) => {
      const mark = html('i');
      mark.style.background = series_colour(index);
      return html('span', {}, mark, run_name(page.runs.findIndex((each) => each.path === run.path)));
    })));
  }
  const holder = html('div');
  const show = (index) => holder.replaceChildren(norm_map(runs[0].norms, norm_quantities[index]));
  const shown = norm_quantities.slice(0, updates ? 4 : 3);
  node.append(html('div', {class: 'card', style: 'margin-top: 0.9rem'}, html('h3', {}, `Every parameter of the layers${runs[0].path === page.runs[0].path ? of_first_run() : ` of ${run_name(1)}`}`), choices('Quantity', shown.map((each) => each.name), show), holder));
  show(0);
}

/** Horizontal bars: `values` [run][group]. */
function norm_bars(groups, values, title) {
  const holder = html('div', {'data-bars': title});
  const most = Math.max(...values.flat().filter((value) => value !== null));
  groups.forEach((group, index) => values.forEach((of_run, run) => {
    if (of_run[index] === null || of_run[index] === undefined) {
      return;
    }
    const bar = html('i');
    bar.style.width = `${of_run[index] / most * 100}%`;
    bar.style.background = series_colour(run);
    holder.append(html('div', {class: 'bar', 'data-group': group, 'data-run': run, 'data-value': of_run[index]},
      html('span', {title: group}, run === 0 ? group : ''), html('div', {}, bar), html('span', {}, number_text(of_run[index]))));
  }));
  return holder;
}

/** Rows are the parameters of a layer, columns the layers. Colours are by the logarithm. */
function norm_map(norms, quantity) {
  const places = norms.map((each) => ({...parameter_place(each.name), value: quantity.value(each), order: place_order(each.name)[2]}))
    .filter((each) => each.rest !== '');
  const rows = [...new Set([...places].sort((a, b) => a.order - b.order).map((each) => each.rest))];
  const columns = [...new Set(places.map((each) => each.group))];
  const values = new Float64Array(rows.length * columns.length).fill(NaN);
  places.forEach((each) => { values[rows.indexOf(each.rest) * columns.length + columns.indexOf(each.group)] = each.value; });
  const drawn = Array.from(values).filter((value) => value > 0).map(Math.log10);
  const [min, max] = [Math.min(...drawn), Math.max(...drawn)];
  const share_of = (value) => (value > 0 ? 0.08 + 0.92 * (Math.log10(value) - min) / (max - min || 1) : 0);
  const map = heat_map({
    title: `${quantity.name} of every parameter`, matrix: {rows: rows.length, columns: columns.length, values}, rows, columns, share_of, most_cell: 46, least_cell: 16, tall: 0.5, most_label: 30,
    describe: (row, column, value) => `${columns[column]}, ${rows[row]}: ${quantity.name} ${Number.isFinite(value) ? number_text(value) : 'none'}`,
  });
  return html('div', {}, map, drawn.length > 0 ? ramp_legend(10 ** min, 10 ** max, share_of) : '');
}
