// The runs: facts, curves, the comparison of two, and the configuration.
const curve_titles = {
  train_loss: 'Training loss', train_nll: 'Training loss, unsmoothed', valid_loss: 'Validation loss', valid_bleu: 'Validation BLEU', valid_accuracy: 'Masked accuracy',
  learning_rate: 'Learning rate', gradient_norm: 'Gradient norm', tokens_per_second: 'Tokens per second',
  repeated: 'Steps computed again', skipped: 'Batches skipped',
};
const entropy_prefix = 'attention_entropy.';
const curves_left_out = ['seconds', 'tokens', 'epoch', 'valid_perplexity'];

function run_name(index) {
  const names = page.runs.map((run) => run.name);
  return names.indexOf(names[index]) === names.lastIndexOf(names[index]) ? names[index] : `${names[index]} (${index + 1})`;
}

/** " of RUN" where two runs are shown, for the titles of what shows only the first. */
function of_first_run() {
  return page.runs && page.runs.length > 1 ? ` of ${run_name(0)}` : '';
}

function show_facts() {
  const main = document.getElementById('main');
  main.append(html('h1', {}, page.runs ? page.runs.map((_, index) => run_name(index)).join(' and ') : page.path));
  main.append(...(page.runs || []).filter((run) => run.facts.length > 0).map((run) => card(page.runs.length > 1 ? run.name : '', facts_list(run.facts))));
  if (page.notes.length > 0) {
    main.append(html('div', {class: 'card notes'}, html('h3', {}, 'Not shown'), html('ul', {}, ...page.notes.map((text) => html('li', {}, text)))));
  }
}

/** How evenly each attention sublayer reads its keys; nothing where that was not measured. */
function entropy_chart(run, index) {
  const series = Object.entries(run.metrics ? run.metrics.series : {}).filter(
    ([key, curve]) => key.startsWith(entropy_prefix) && curve.steps.length > 0);
  return series.length === 0 ? null : line_chart({
    title: `Attention entropy${page.runs.length > 1 ? ` of ${run_name(index)}` : ''} (1: uniform)`,
    series: series.map(([key, curve]) => ({...curve, name: key.slice(entropy_prefix.length)})),
  });
}

function show_curves() {
  const runs = (page.runs || []).filter((run) => run.metrics);
  const has_points = (key) => runs.some((run) => run.metrics.series[key] && run.metrics.series[key].steps.length > 0);
  const keys = [...new Set([...Object.keys(curve_titles), ...runs.flatMap((run) => Object.keys(run.metrics.series)).sort()])]
    .filter((key) => has_points(key) && !curves_left_out.includes(key) && !key.startsWith(entropy_prefix));
  if (keys.length === 0) {
    return;
  }
  const unreadable = runs.reduce((sum, run) => sum + run.metrics.unreadable, 0);
  const node = section('curves', 'Curves', 'Over the optimizer steps. Long curves keep the smallest and the largest value of '
    + 'each stretch; steps at which a value is not finite are shaded. Point at a chart, or focus it and use the arrow keys, to read values.');
  node.append(html('div', {class: 'grid'}, ...keys.map((key) => line_chart({
    title: curve_titles[key] || key, log: key === 'gradient_norm',
    series: page.runs.map((run, index) => ({...(run.metrics && run.metrics.series[key] || {steps: [], values: []}), name: run_name(index), colour: series_colour(index)})),
  })), ...page.runs.map(entropy_chart)));
  runs.forEach((run) => node.append(...run.metrics.not_finite.map((text) => note(`${page.runs.length > 1 ? run_name(page.runs.indexOf(run)) + ': ' : ''}${text}.`))));
  if (unreadable > 0) {
    node.append(note(unreadable === 1 ? 'One line of metrics.jsonl is not readable and is left out.'
      : `${grouped(unreadable)} lines of metrics.jsonl are not readable and are left out.`));
  }
}

/** The last value of each curve of both runs, and the keys of their configurations that differ. */
function show_comparison() {
  if (!page.runs || page.runs.length < 2) {
    return;
  }
  const node = section('comparison', 'Comparison', `${run_name(0)} beside ${run_name(1)}.`);
  const series = page.runs.map((run) => (run.metrics ? run.metrics.series : {}));
  const keys = Object.keys(curve_titles).filter((key) => series.some((each) => each[key]));
  const best = {train_loss: Math.min, valid_loss: Math.min, valid_bleu: Math.max, valid_accuracy: Math.max};
  const has = (curve) => curve && curve.steps.length > 0;
  const row = (key) => [curve_titles[key], ...series.map((each) => (has(each[key]) ? last_text(each[key]) : number_text(null))),
    ...series.map((each) => (best[key] && has(each[key]) ? number_text(best[key](...each[key].values)) : ''))];
  node.append(card('Last and best values', plain_table(
    ['', `${run_name(0)}, last`, `${run_name(1)}, last`, `${run_name(0)}, best`, `${run_name(1)}, best`], keys.map(row), [1, 2, 3, 4])));
  node.append(card('Configuration: what differs', page.differences.length > 0
    ? plain_table(['key', run_name(0), run_name(1)], page.differences)
    : html('p', {class: 'lead'}, page.runs.every((run) => run.config) ? 'Nothing.' : 'One of the runs has no checkpoint.')));
}

function show_configuration() {
  const run = (page.runs || [])[0];
  if (run && run.config) {
    section('configuration', 'Configuration', '', of_first_run()).append(card('', html('details', {},
      html('summary', {}, 'the checkpoint’s whole configuration'), html('pre', {class: 'config'}, run.config))));
  }
}
