// The content of a checkpoint: positions, neighbours of words, and norms by layer.

function show_positions() {
  const all = page.model && page.model.positions || [];
  if (all.length > 0) {
    section('positions', 'Positions', 'The positional encodings that the model computes with, as a map and as waves.', of_run(0)).append(...all.map(position_cards));
  }
}

function position_cards(encoding) {
  const matrix = decoded(encoding.matrix);
  const share_of = (value) => value / (Math.max(Math.abs(matrix.min), Math.abs(matrix.max)) || 1);
  const canvas = html('canvas', {class: 'matrix', 'aria-label': `${encoding.kind} positions`, 'data-positions': encoding.kind});
  const readout = html('div', {class: 'readout'});
  const bias = encoding.row_name === 'head';
  const value_at = (row, column) => matrix.values[row * matrix.columns + column];
  const height = Math.min(Math.max(matrix.rows * (bias ? 18 : 2.2), 90), 300);
  canvas.style.height = `${height}px`;
  canvas.addEventListener('pointermove', (event) => {
    const box = canvas.getBoundingClientRect();
    const row = Math.min(Math.floor((event.clientY - box.top) / box.height * matrix.rows), matrix.rows - 1);
    const column = Math.min(Math.floor((event.clientX - box.left) / box.width * matrix.columns), matrix.columns - 1);
    readout.textContent = `${encoding.row_name} ${row + (bias ? 1 : 0)}, ${encoding.column_name} ${column + encoding.first_column}: ${number_text(value_at(row, column))}`;
  });
  paint_matrix(canvas, matrix, share_of);
  // A wave for each head over the distance, or for some columns over the position.
  const spread = (count, max) => Array.from({length: Math.min(count, max)}, (_, i) => Math.floor(i * count / Math.min(count, max)));
  const series = bias
    ? spread(matrix.rows, 8).map((row) => ({
      name: `head ${row + 1}`, steps: spread(matrix.columns, Infinity).map((column) => column + encoding.first_column),
      values: spread(matrix.columns, Infinity).map((column) => value_at(row, column)),
    }))
    : spread(matrix.columns, 6).map((column) => ({
      name: `${encoding.column_name} ${column}`, steps: spread(matrix.rows, Infinity), values: spread(matrix.rows, Infinity).map((row) => value_at(row, column)),
    }));
  return html('div', {class: 'grid wide', style: 'margin-bottom: 0.9rem'},
    card(`${encoding.kind.replaceAll('_', ' ')}: ${encoding.name}`, html('p', {class: 'lead'}, encoding.note), canvas,
      html('p', {class: 'axis-note'}, `down: ${encoding.row_name}; across: ${encoding.column_name}`), ramp_legend(matrix.min, matrix.max, share_of), readout),
    line_chart({title: () => 'Waves', series: () => series, height: height + 60, plain: true, axis: () => ({text: number_text, at: (place) => `${bias ? 'distance' : 'position'} ${number_text(place)}`})}));
}

function show_embeddings() {
  const tables = (page.embeddings || []).filter((table) => table.words.length > 0);
  if (tables.length === 0) {
    return;
  }
  const node = section('embeddings', 'Embeddings', 'The pieces of the vocabulary whose embeddings point most in the direction of a word’s (the mean of its pieces), by the cosine of the angle.', of_run(0));
  for (const table of tables) {
    const holder = html('div');
    const show = (index) => {
      const {word, pieces, neighbours} = table.words[index];
      const texts = pieces.map(piece_text).join(' ');
      holder.replaceChildren(html('p', {class: 'lead'}, pieces.length > 1 ? `“${word}” is ${pieces.length} pieces: ${texts}` : `“${word}” is the piece ${texts}`),
        ...neighbours.map(([piece, cosine]) => bar_row({'data-piece': piece, 'data-cosine': cosine}, piece_text(piece), cosine, cosine.toFixed(3))),
        neighbours.length === 0 ? html('p', {class: 'lead'}, 'No neighbours: the word has no embedding.') : '');
    };
    node.append(card(table.table, choices('Words', table.words.map((each) => each.word), show), holder));
  }
}

/** "encoder.layers.0.self_attention.q.weight" → the layer "encoder 1" and the rest. */
function parameter_place(name) {
  const match = /^([^.]+)\.layers\.(\d+)\.(.+)$/.exec(name);
  return match ? {group: `${match[1]} ${Number(match[2]) + 1}`, rest: match[3]} : {group: name.replace(/\.(weight|bias)$/, ''), rest: ''};
}

/** Parameters outside of layers first, then the encoder, then the decoder; layers by their numbers. */
function in_model_order(norms) {
  const stack = ({name}) => ['encoder.layers.', 'decoder.layers.'].findIndex((start) => name.startsWith(start));
  return [...norms].sort((a, b) => stack(a) - stack(b) || a.name.localeCompare(b.name, 'en', {numeric: true}));
}

const norm_quantities = [
  {name: 'root mean square', value: (each) => each.norm / Math.sqrt(each.elements)},
  {name: 'norm', value: (each) => each.norm},
  {name: 'max', value: (each) => each.max},
  {name: 'last update / value', value: (each) => (each.update === undefined || each.norm === 0 ? NaN : each.update / each.norm)},
];

function show_norms() {
  const runs = (page.runs || []).map((run, index) => ({norms: in_model_order(run.norms || []), name: run.name, colour: series_colour(index)}))
    .filter((run) => run.norms.length > 0);
  if (runs.length === 0) {
    return;
  }
  const updates = runs.some((run) => run.norms.some((each) => each.update !== undefined));
  const node = section('norms', 'Norms', `The sizes of parameters${updates ? ' and of their last update, which Adam’s moments give' : ''}. By layer: the square root of the sum of squares of all its parameters.`);
  node.append(html('div', {class: 'grid wide'}, norm_bars('Parameters by layer', runs, 'norm'), updates ? norm_bars('Last update by layer', runs, 'update') : null),
    legend(runs.length > 1 ? runs.map((run) => [run.name, run.colour]) : []));
  const holder = html('div');
  const shown = norm_quantities.slice(0, updates ? 4 : 3);
  node.append(html('div', {class: 'card fitted', style: 'margin-top: 0.9rem'}, html('h3', {}, `Every parameter of the layers${page.runs.length > 1 ? ` of ${runs[0].name}` : ''}`),
    choices('Quantity', shown.map((each) => each.name), (index) => holder.replaceChildren(norm_map(runs[0].norms, norm_quantities[index]))), holder));
}

/** Bars for each layer, of each run: the square root of the sum of squares of its parameters' norms. */
function norm_bars(title, runs, key) {
  const groups = [...new Set(runs[0].norms.map((each) => parameter_place(each.name).group))];
  const bars = groups.flatMap((group) => runs.map((run, index) => {
    const norms = run.norms.filter((each) => parameter_place(each.name).group === group && each[key] !== undefined).map((each) => each[key]);
    return {group, run, index, value: norms.length > 0 ? Math.hypot(...norms) : null};
  })).filter((bar) => bar.value !== null);
  const max = Math.max(...bars.map((bar) => bar.value));
  return card(title, html('div', {'data-bars': title}, ...bars.map(({group, run, index, value}) => bar_row(
    {'data-group': group, 'data-run': index, 'data-value': value}, index === 0 ? group : '', value / max, number_text(value), run.colour))));
}

/** Rows are the parameters of a layer, columns the layers. Colours are by the logarithm. */
function norm_map(norms, quantity) {
  const places = norms.map((each) => ({...parameter_place(each.name), value: quantity.value(each)})).filter((each) => each.rest !== '');
  const rows = [...new Set(places.map((each) => each.rest))];
  const columns = [...new Set(places.map((each) => each.group))];
  const values = new Float64Array(rows.length * columns.length).fill(NaN);
  places.forEach((each) => { values[rows.indexOf(each.rest) * columns.length + columns.indexOf(each.group)] = each.value; });
  const drawn = Array.from(values).filter((value) => value > 0).map(Math.log10);
  const [min, max] = extent(drawn);
  const share_of = (value) => (value > 0 ? 0.08 + 0.92 * (Math.log10(value) - min) / (max - min || 1) : 0);
  const map = heat_map({
    title: `${quantity.name} of every parameter`, matrix: {rows: rows.length, columns: columns.length, values}, rows, columns, share_of, max_cell: 110, min_cell: 16, row_height: 21, max_label: 30,
    describe: (row, column, value) => `${columns[column]}, ${rows[row]}: ${quantity.name} ${Number.isFinite(value) ? number_text(value) : 'none'}`,
  });
  return html('div', {}, map, drawn.length > 0 ? ramp_legend(10 ** min, 10 ** max, share_of) : '');
}
