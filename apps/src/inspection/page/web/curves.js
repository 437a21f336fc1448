// The curves of all runs, and what the reader chooses for them: the horizontal axis, smoothing, and loss or perplexity.
const curve_titles = {
  train_loss: 'Training loss', train_nll: 'Training loss, unsmoothed', valid_loss: 'Validation loss', valid_bleu: 'Validation BLEU', valid_chrf: 'Validation chrF2', valid_ter: 'Validation TER', valid_accuracy: 'Masked accuracy',
  learning_rate: 'Learning rate', gradient_norm: 'Gradient norm', tokens_per_second: 'Tokens per second',
  repeated: 'Steps computed again', skipped: 'Batches skipped',
};
/** Curves in nats for each token, whose exponential is the perplexity. */
const perplexity_titles = {train_nll: 'Training perplexity', valid_loss: 'Validation perplexity'};
/** Keys of which each run has a curve for each of several things, in one chart. */
const grouped_curves = [
  {prefix: 'attention_entropy.', title: (of) => `Attention entropy${of} (1: uniform)`, name: (path) => sublayer_name(path)},
  {prefix: 'corpus_nll.', title: (of) => `Loss of each corpus${of}`, name: (corpus) => corpus},
  {prefix: 'tag_nll.', title: (of) => `Loss by tag${of}`, name: (tag) => tag},
  {prefix: 'corpus_epochs.', title: (of) => `Passes over each corpus${of}`, name: (corpus) => corpus},
  {prefix: 'expert_entropy.', title: (of) => `Entropy of the experts' load${of} (1: even)`, name: (path) => sublayer_name(path)},
  {prefix: 'expert_dropped.', title: (of) => `Share of choices that experts drop${of}`, name: (path) => sublayer_name(path)},
];
const curves_left_out = ['seconds', 'tokens', 'epoch', 'valid_perplexity'];
const chosen_curves = {axis: 'step', smoothing: 0, perplexity: false, redraw: []};

/** The title of a curve; a key of another validation set than data.valid is "valid_loss/SET". */
function curve_title(key, titles = curve_titles) {
  const [name, ...set] = key.split('/');
  const title = titles[name] || (titles === curve_titles ? name.replace(/^valid_/, 'Validation ') : undefined);
  return title && set.length > 0 ? `${title}, ${set.join('/')}` : title;
}

function perplexity_title(key) {
  return curve_title(key, perplexity_titles);
}

function has_points(curve) {
  return Boolean(curve) && curve.steps.length > 0;
}

function series_of(run) {
  return run.metrics ? run.metrics.series : {};
}

/** The largest unit of time in which `seconds` are at least two. */
function time_unit(seconds) {
  const units = [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']];
  return units.find(([size]) => seconds >= 2 * size) || units.at(-1);
}

/** The horizontal axes that every run has: {name, text(place), at(place), place(run): a function of the step}. */
function curve_axes(runs) {
  const axes = [{name: 'step', ...step_axis, place: () => (step) => step}];
  const over = (key, size) => (run) => {
    const curve = series_of(run)[key];
    return (step) => interpolated(curve.steps, curve.values, step) / size;
  };
  const all_have = (key) => runs.every((run) => has_points(series_of(run)[key]));
  if (all_have('seconds')) {
    const [size, unit] = time_unit(Math.max(...runs.map((run) => series_of(run).seconds.values.at(-1))));
    axes.push({name: 'training time', text: (place) => `${number_text(place)} ${unit}`, at: (place) => `${number_text(place)} ${unit} of training`, place: over('seconds', size)});
  }
  if (all_have('tokens')) {
    const short = new Intl.NumberFormat('en', {notation: 'compact', maximumSignificantDigits: 3});
    axes.push({name: 'tokens', text: (place) => short.format(place), at: (place) => `${short.format(place)} tokens`, place: over('tokens', 1)});
  }
  return axes;
}

/** The steps at which a run's epochs end: [{step, epoch}]. */
function epoch_ends(run) {
  const curve = series_of(run).epoch;
  if (!has_points(curve)) {
    return [];
  }
  const first = Math.floor(curve.values[0]) + 1;
  const count = Math.max(0, Math.floor(curve.values.at(-1)) - first + 1);
  return Array.from({length: Math.min(count, 10000)}, (_, index) => ({step: interpolated(curve.values, curve.steps, first + index), epoch: first + index}));
}

/** A curve as the reader has chosen to see it. */
function chosen_curve(run, axis, key) {
  const curve = series_of(run)[key];
  if (!has_points(curve)) {
    return {steps: [], values: []};
  }
  const raw = chosen_curves.perplexity && perplexity_title(key) ? curve.values.map(Math.exp) : curve.values;
  return {...curve, raw, values: chosen_curves.smoothing > 0 ? smoothed(raw, chosen_curves.smoothing) : raw, x_of: axis.place(run), ends: curve_end(run, key)};
}

/** A run's curves whose keys start with the prefix, in one chart; nothing where there are none. */
function grouped_chart(run, common, {prefix, title, name}) {
  const keys = Object.keys(series_of(run)).filter((key) => key.startsWith(prefix) && has_points(series_of(run)[key]));
  return keys.length === 0 ? null : line_chart({
    ...common, wide: true, title: () => title(of_run(page.runs.indexOf(run))),
    series: () => keys.map((key) => ({...chosen_curve(run, common.axis(), key), name: name(key.slice(prefix.length))})),
  });
}

/** The load of a run's experts since the last line but one: rows are mixtures, columns experts; nothing where there are none. */
function expert_map(run) {
  const load = run.metrics.expert_load || {};
  const layers = Object.keys(load);
  const columns = Math.max(0, ...layers.map((layer) => load[layer].length));
  if (columns === 0) {
    return null;
  }
  const values = Float64Array.from(layers.flatMap((layer) => Array.from({length: columns}, (_, expert) => load[layer][expert] * load[layer].length)));
  const most = Math.max(...values.filter(Number.isFinite));
  return card(`Load of experts${of_run(page.runs.indexOf(run))}, last line (1: even)`, heat_map({
    title: 'Load of experts', matrix: {rows: layers.length, columns, values}, rows: layers.map(sublayer_name), columns: Array.from({length: columns}, (_, expert) => String(expert)),
    share_of: (value) => value / most, row_height: 21, max_label: 30,
    describe: (row, column, value) => (Number.isFinite(value) ? `${sublayer_name(layers[row])}, expert ${column}: ${number_text(value)} of an even share` : 'no expert'),
  }));
}

function curve_controls(axes, has_perplexity) {
  const change = (choice) => {
    Object.assign(chosen_curves, choice);
    chosen_curves.redraw.forEach((draw) => draw());
  };
  const text = html('output', {}, '0');
  const slider = html('input', {type: 'range', min: 0, max: 0.99, step: 0.01, value: 0, 'aria-label': 'Smoothing', input: () => {
    text.textContent = slider.value;
    change({smoothing: Number(slider.value)});
  }});
  return html('div', {class: 'choices'},
    choices('Horizontal axis', axes.map((axis) => axis.name), (index) => change({axis: axes[index].name})),
    has_perplexity ? choices('Loss or perplexity', ['loss', 'perplexity'], (index) => change({perplexity: index === 1})) : null,
    html('label', {class: 'controls'}, 'smoothing ', slider, text));
}

function show_curves() {
  const runs = (page.runs || []).filter((run) => run.metrics);
  const has_curve = (key) => runs.some((run) => has_points(series_of(run)[key]));
  const keys = [...new Set([...Object.keys(curve_titles), ...runs.flatMap((run) => Object.keys(series_of(run))).sort()])]
    .filter((key) => has_curve(key) && !curves_left_out.includes(key.split('/')[0]) && !grouped_curves.some(({prefix}) => key.startsWith(prefix)));
  if (keys.length === 0) {
    return;
  }
  const axes = curve_axes(runs);
  const axis = () => axes.find((each) => each.name === chosen_curves.axis);
  const first = epoch_ends(runs[0]).length > 0 ? runs[0] : null;
  const marks = () => [...(first ? epoch_ends(first) : []).map(({step, epoch}) => ({x: axis().place(first)(step), text: String(epoch), title: `end of epoch ${epoch}`})),
    ...runs.flatMap((run) => start_marks(run, axis()))];
  const common = {axis, marks, redraw: chosen_curves.redraw};
  const node = section('curves', 'Curves', 'Long curves keep the smallest and the largest value of each stretch; steps at which a value is not finite are shaded. '
    + `${first ? `Dotted lines: the ends of epochs${of_run(page.runs.indexOf(first))}. ` : ''}${runs.some((run) => resumptions_of(run).length > 0) ? 'Dashed lines: restarts. ' : ''}Smoothing is an exponential moving average over the points of a curve, which stay faintly visible. `
    + 'Point at a chart, or focus it and use the arrow keys, to read values.');
  // The curves of a run's validation sets are in one chart; of several runs each set has its own.
  const base_of = (key) => key.split('/')[0];
  const of_sets = (key) => (runs.length > 1 ? [key] : keys.filter((each) => base_of(each) === base_of(key)));
  const charts = keys.filter((key) => of_sets(key)[0] === key).map((key) => line_chart({
    ...common, title: () => (chosen_curves.perplexity && perplexity_title(key)) || curve_title(key),
    log: () => key === 'gradient_norm' || (chosen_curves.perplexity && Boolean(perplexity_title(key))),
    series: () => (runs.length > 1 ? runs.map((run) => ({...chosen_curve(run, axis(), key), name: run.name, colour: series_colour(page.runs.indexOf(run))}))
      : of_sets(key).map((each) => ({...chosen_curve(runs[0], axis(), each), name: each.split('/').slice(1).join('/') || 'data.valid'}))),
  }));
  node.append(curve_controls(axes, keys.some((key) => perplexity_title(key))),
    html('div', {class: 'grid'}, ...charts, ...runs.flatMap((run) => [...grouped_curves.map((group) => grouped_chart(run, common, group)), expert_map(run)])));
  runs.forEach((run) => node.append(...[starts_text(run)].filter(Boolean).map(note)));
  runs.forEach((run) => node.append(...run.metrics.not_finite.map((text) => note(`${page.runs.length > 1 ? run.name + ': ' : ''}${text}.`))));
  const unreadable = runs.reduce((sum, run) => sum + run.metrics.unreadable, 0);
  if (unreadable > 0) {
    node.append(note(unreadable === 1 ? 'One line of metrics.jsonl is not readable and is left out.'
      : `${grouped(unreadable)} lines of metrics.jsonl are not readable and are left out.`));
  }
}
