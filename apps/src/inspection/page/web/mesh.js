// The mesh of ranks, as report.json has it: what each rank holds, its memory and its communication.
const mesh_axes = ['pipeline', 'data', 'context', 'tensor'];
const memory_parts = ['parameters', 'gradients', 'moments', 'kernels', 'activations'];
const rank_box = {width: 66, height: 42, gap: 6};
const most_drawn_ranks = 512;

function show_mesh() {
  const runs = (page.runs || []).filter((run) => run.report && Array.isArray(run.report.ranks) && run.report.ranks.length > 0);
  const totals = (page.runs || []).filter((run) => !run.report && run.metrics && Object.keys(run.metrics.communication).length > 0);
  if (runs.length + totals.length === 0) {
    return;
  }
  const node = section('mesh', 'Mesh', 'The ranks by their coordinates: stages of the pipeline from left to right, data replicas from top to bottom; '
    + 'in each the tensor group across and the context group down. Choose a rank, also by the arrow keys.');
  runs.forEach((run) => node.append(...mesh_of(run)));
  totals.forEach((run) => node.append(card(`${run.name}: communication of rank 0, over the whole run`,
    plain_table(['group and verb', 'bytes'], Object.entries(run.metrics.communication).map(([name, bytes]) => [name, bytes_text(bytes)]), [1]))));
}

function used_memory(rank) {
  return rank.memory && (rank.memory.measured || rank.memory.planned) || {};
}

function mesh_of(run) {
  const ranks = run.report.ranks.slice(0, most_drawn_ranks);
  const details = html('div', {'aria-live': 'polite'});
  const drawing = html('div', {class: 'scroll', tabindex: 0, role: 'group', 'aria-label': `mesh of ${run.name}`});
  const sizes = Object.fromEntries(mesh_axes.map((axis) => [axis, 1 + Math.max(...ranks.map((rank) => rank[axis] || 0))]));
  const boxes = [];
  let chosen = 0;

  function place(rank) {
    const {width, height, gap} = rank_box;
    const stage = sizes.tensor * (width + gap) + 18;
    const replica = sizes.context * (height + gap) + 14;
    return {x: 10 + (rank.pipeline || 0) * stage + (rank.tensor || 0) * (width + gap), y: 30 + (rank.data || 0) * replica + (rank.context || 0) * (height + gap)};
  }
  const most = Math.max(...ranks.map((rank) => used_memory(rank).total || 0));
  const canvas = shape('svg', {
    width: 20 + sizes.pipeline * (sizes.tensor * (rank_box.width + rank_box.gap) + 18), height: 36 + sizes.data * (sizes.context * (rank_box.height + rank_box.gap) + 14),
  });
  for (let stage = 0; stage < sizes.pipeline; ++stage) {
    canvas.append(shape('text', {x: place({pipeline: stage}).x, y: 18, class: 'strong'}, sizes.pipeline > 1 ? `stage ${stage}` : 'all layers'));
  }
  ranks.forEach((rank, index) => {
    const {x, y} = place(rank);
    const memory = used_memory(rank);
    const rect = shape('rect', {x, y, width: rank_box.width, height: rank_box.height, rx: 6});
    rect.style.fill = heat_colour(most > 0 ? 0.42 * (memory.total || 0) / most : 0);
    boxes.push(shape('g', {class: 'rank', 'data-rank': rank.rank, 'data-memory': memory.total, click: () => { drawing.focus(); choose(index); }}, rect,
      shape('text', {x: x + rank_box.width / 2, y: y + 18, 'text-anchor': 'middle', class: 'strong'}, `rank ${rank.rank}`),
      shape('text', {x: x + rank_box.width / 2, y: y + 33, 'text-anchor': 'middle', class: 'strong'}, memory.total ? bytes_text(memory.total) : '')));
  });
  canvas.append(...boxes);
  drawing.append(canvas);

  function choose(index) {
    boxes[chosen].firstChild.classList.remove('chosen');
    chosen = index;
    boxes[chosen].firstChild.classList.add('chosen');
    details.replaceChildren(...rank_details(run.report, ranks[chosen]));
    details.dataset.rank = ranks[chosen].rank;
  }
  drawing.addEventListener('keydown', (event) => {
    const move = {ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1]}[event.key];
    if (!move) {
      return;
    }
    event.preventDefault();
    const from = place(ranks[chosen]);
    const ahead = ranks.map((rank, index) => ({index, x: place(rank).x - from.x, y: place(rank).y - from.y}))
      .map((each) => ({...each, along: each.x * move[0] + each.y * move[1], across: Math.abs(each.x * move[1]) + Math.abs(each.y * move[0])}))
      .filter((each) => each.along > 0).sort((a, b) => a.across - b.across || a.along - b.along);
    if (ahead.length > 0) {
      choose(ahead[0].index);
    }
  });
  choose(0);
  const {efficiency, training} = run.report;
  return [card(page.runs.length > 1 ? run.name : 'Ranks', drawing,
    run.report.ranks.length > ranks.length ? note(`the first ${ranks.length} of ${run.report.ranks.length} ranks`) : null), html('div', {class: 'card'}, details),
  memory_card(ranks), traffic_card(run.report), training || efficiency ? efficiency_card(run.report) : null].filter(Boolean);
}

function range_text(range) {
  return Array.isArray(range) ? (range[1] - range[0] === 1 ? `${range[0]}` : `${range[0]} to ${range[1] - 1}`) : '–';
}

function rank_details(report, rank) {
  const stage = (report.stages || [])[rank.pipeline || 0];
  const facts = [
    ['host', rank.host], ['coordinates', mesh_axes.map((axis) => `${axis} ${rank[axis] || 0}`).join(', ')],
    ['layers', stage && stage.words ? stage.words.join('; ') : '–'], ['heads', range_text(rank.heads)], ['feed-forward columns', range_text(rank.d_ff)],
    ['rows of the source’s table', range_text(rank.source_vocabulary)], ['rows of the target’s table', range_text(rank.target_vocabulary)],
    rank.chunks ? ['chunks of every sequence', rank.chunks.join(' and ')] : null,
    rank.memory && rank.memory.resident ? ['resident memory', bytes_text(rank.memory.resident)] : null,
    rank.seconds ? ['seconds of computing and of communicating', `${number_text(rank.seconds.computing)} and ${number_text(rank.seconds.communicating)}`] : null,
    ...Object.entries(rank.communication || {}).map(([group, each]) => [`${group} group`, `${bytes_text(each.bytes)}${each.seconds > 0 ? ` in ${number_text(each.seconds)} s` : ', outside steps'}`]),
  ].filter(Boolean);
  return [html('h3', {}, `Rank ${rank.rank}`), html('dl', {class: 'facts'}, ...facts.map(([label, text]) => html('div', {}, html('dt', {}, label), html('dd', {}, String(text)))))];
}

/** A bar for each rank, in the parts of its memory. */
function memory_card(ranks) {
  const shown = ranks.filter((rank) => used_memory(rank).total > 0).slice(0, 64);
  if (shown.length === 0) {
    return null;
  }
  const most = Math.max(...shown.map((rank) => used_memory(rank).total));
  const rows = shown.map((rank) => {
    const memory = used_memory(rank);
    const bar = html('div', {style: 'display: flex; overflow: hidden'}, ...memory_parts.map((part, index) => {
      const piece = html('i', {title: `${part}: ${bytes_text(memory[part] || 0)}`, 'data-part': part, 'data-bytes': memory[part] || 0});
      piece.style.width = `${(memory[part] || 0) / most * 100}%`;
      piece.style.background = series_colour(index);
      piece.style.borderRadius = '0';
      return piece;
    }));
    return html('div', {class: 'bar', 'data-rank': rank.rank}, html('span', {}, `rank ${rank.rank}`), bar, html('span', {style: 'white-space: nowrap'}, bytes_text(memory.total)));
  });
  const legend = html('div', {class: 'legend'}, ...memory_parts.map((part, index) => {
    const mark = html('i', {class: 'block'});
    mark.style.background = series_colour(index);
    return html('span', {}, mark, part);
  }));
  return card(shown[0].memory.measured ? 'Measured memory of each rank' : 'Planned memory of each rank', ...rows, legend);
}

/** Steps' seconds; reports of earlier versions have 0 where no step had any. */
function seconds_text(seconds) {
  return seconds > 0 ? number_text(seconds) : 'outside steps';
}

function traffic_card(report) {
  const rows = Object.entries(report.communication || {}).map(([name, each]) => [name, grouped(each.operations), bytes_text(each.bytes), each.seconds === undefined ? '' : seconds_text(each.seconds)]);
  return rows.length > 0 ? card('Communication of all ranks', plain_table(['group and verb', 'operations', 'bytes', 'seconds'], rows, [1, 2, 3])) : null;
}

function efficiency_card(report) {
  const percent = (value) => (value === null || value === undefined ? 'unknown' : `${(100 * value).toFixed(1)} %`);
  const {efficiency = {}, training = {}, energy = {}} = report;
  const each = efficiency || {};
  const facts = [
    ['steps', training ? `${training.first_step} to ${training.last_step}` : '–'], ['tokens per second', number_text(training ? training.tokens_per_second : null)],
    ['load balance', percent(each.load_balance)], ['communication efficiency', percent(each.communication)], ['parallel efficiency', percent(each.parallel)],
    ['computation scaling', percent(each.computation_scaling)], ['model FLOP utilisation', percent(each.model_utilisation)],
    ['energy for a million tokens', energy && energy.joules_per_million_tokens ? `${number_text(energy.joules_per_million_tokens)} J (${energy.source})` : 'unknown'],
    each.slowest ? ['slowest rank', `${each.slowest.rank} on ${each.slowest.host}`] : null,
  ].filter(Boolean);
  return card('Efficiency', html('dl', {class: 'facts'}, ...facts.map(([label, text]) => html('div', {}, html('dt', {}, label), html('dd', {}, String(text))))));
}
