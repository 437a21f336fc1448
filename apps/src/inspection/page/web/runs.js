// The runs: facts, their comparison, sample translations, and the configuration.

/** Runs in directories of one name get their number behind it. */
function tell_runs_apart() {
  const names = (page.runs || []).map((run) => run.name);
  names.forEach((name, index) => {
    if (names.indexOf(name) !== names.lastIndexOf(name)) {
      page.runs[index].name = `${name} (${index + 1})`;
    }
  });
}

/** " of RUN" where several runs are shown, for the titles of what shows only one. */
function of_run(index) {
  return page.runs && page.runs.length > 1 ? ` of ${page.runs[index].name}` : '';
}

/** "A, B and C" */
function listed(names) {
  return names.length < 2 ? names.join('') : `${names.slice(0, -1).join(', ')} and ${names.at(-1)}`;
}

function show_facts() {
  const main = document.getElementById('main');
  main.append(html('h1', {}, ...breakable(page.runs ? listed(page.runs.map((run) => run.name)) : page.path)));
  main.append(...(page.runs || []).filter((run) => run.facts.length > 0).map((run) => card(page.runs.length > 1 ? run.name : '', facts_list(run.facts))));
  if (page.notes.length > 0) {
    main.append(html('div', {class: 'card notes'}, html('h3', {}, 'Not shown'), html('ul', {}, ...page.notes.map((text) => html('li', {}, ...breakable(text))))));
  }
}

/** The last and the best value of each curve of all runs, and the keys of their configurations that differ. */
function show_comparison() {
  if (!page.runs || page.runs.length < 2) {
    return;
  }
  const names = page.runs.map((run) => run.name);
  const node = section('comparison', 'Comparison', `${listed(names)}, side by side.`);
  const series = page.runs.map(series_of);
  const best = {train_loss: Math.min, train_nll: Math.min, valid_loss: Math.min, valid_bleu: Math.max, valid_accuracy: Math.max};
  // The reports say which values of a metric are better, also of a plug-in's.
  page.runs.forEach((run) => Object.entries((run.report || {}).validation || {}).forEach(([key, {higher_is_better}]) => {
    best[key] = higher_is_better ? Math.max : Math.min;
  }));
  const value = (curve, key) => (!has_points(curve) ? number_text(null)
    : best[key] ? `${last_text(curve)} (best ${number_text(best[key](...extent(curve.values)))})` : last_text(curve));
  const keys = [...new Set([...Object.keys(curve_titles), ...Object.keys(best)])].filter((key) => series.some((each) => has_points(each[key])));
  node.append(card('Last values', plain_table(['', ...names], keys.map((key) => [curve_title(key), ...series.map((each) => value(each[key], key))]))));
  node.append(card('Configuration: what differs', page.differences.length > 0
    ? plain_table(['key', ...names], page.differences)
    : html('p', {class: 'lead'}, page.runs.every((run) => run.config) ? 'Nothing.' : 'Not every run has a checkpoint.')));
}

/** Samples as tables to choose from: the checkpoint's own translations, then those of validations, the newest first. */
function show_translations() {
  const of_validations = (run) => (run.metrics && run.metrics.samples || []).map(
    ({step, rows}) => ({name: `${page.runs.length > 1 ? `${run.name}, ` : ''}validation at step ${number_text(step)}`, rows})).reverse();
  const of_checkpoint = page.translations ? [{name: `the checkpoint${of_run(0)}, now, pairs of ${page.datasets[0].name}`, rows: page.translations}] : [];
  const all = [...of_checkpoint, ...(page.runs || []).flatMap(of_validations)]
    .map(({name, rows}) => ({name, rows: rows.filter((row) => Array.isArray(row) && row.length === 3)})).filter(({rows}) => rows.length > 0);
  if (all.length === 0) {
    return;
  }
  const holder = html('div', {class: 'card'});
  section('translations', 'Translations', 'Pairs of the data, and what the model makes of their sources. A validation that translates writes its first pairs.').append(
    html('div', {class: 'controls'}, menu('Translated by', all.map(({name}) => name),
      (index) => holder.replaceChildren(plain_table(['source', 'reference', 'translation'], all[index].rows)))), holder);
}

function show_configuration() {
  const run = (page.runs || [])[0];
  if (run && run.config) {
    section('configuration', 'Configuration', '', of_run(0)).append(card('', html('details', {},
      html('summary', {}, 'the checkpoint’s whole configuration'), html('pre', {class: 'config'}, run.config))));
  }
}
