// The mesh of ranks, as report.json has it: what each rank holds, its memory and its communication.
const mesh_axes = ['pipeline', 'data', 'context', 'tensor'];
const memory_parts = ['parameters', 'gradients', 'state', 'kernels', 'activations'];
const rank_box = {width: 66, height: 42, gap: 6};
const max_drawn_ranks = 512;

function show_mesh() {
  const runs = (page.runs || []).filter((run) => run.report && Array.isArray(run.report.ranks) && run.report.ranks.length > 0);
  if (runs.length > 0) {
    section('mesh', 'Mesh', 'The ranks by their coordinates: stages of the pipeline from left to right, data replicas from top to bottom; '
      + 'in each the tensor group across and the context group down. Choose a rank, also by the arrow keys.').append(...runs.flatMap(mesh_of));
  }
}

function used_memory(rank) {
  const memory = rank.memory && (rank.memory.measured || rank.memory.planned) || {};
  return {...memory, state: memory.state || memory.moments};  // its name in earlier reports
}

function mesh_of(run) {
  const ranks = run.report.ranks.slice(0, max_drawn_ranks);
  const details = html('div', {'aria-live': 'polite'});
  const drawing = html('div', {class: 'scroll', tabindex: 0, role: 'group', 'aria-label': `mesh of ${run.name}`});
  const sizes = Object.fromEntries(mesh_axes.map((axis) => [axis, 1 + Math.max(...ranks.map((rank) => rank[axis] || 0))]));
  const {width, height, gap} = rank_box;
  const stage_width = sizes.tensor * (width + gap) + 18;
  const replica_height = sizes.context * (height + gap) + 14;
  const place = (rank) => ({
    x: 10 + (rank.pipeline || 0) * stage_width + (rank.tensor || 0) * (width + gap),
    y: 30 + (rank.data || 0) * replica_height + (rank.context || 0) * (height + gap),
  });
  const max = Math.max(...ranks.map((rank) => used_memory(rank).total || 0));
  const canvas = shape('svg', {width: 20 + sizes.pipeline * stage_width, height: 36 + sizes.data * replica_height});
  for (let stage = 0; stage < sizes.pipeline; ++stage) {
    canvas.append(shape('text', {x: place({pipeline: stage}).x, y: 18, class: 'strong'}, sizes.pipeline > 1 ? `stage ${stage}` : 'all layers'));
  }
  const boxes = ranks.map((rank, index) => {
    const {x, y} = place(rank);
    const {total} = used_memory(rank);
    const rect = shape('rect', {x, y, width, height, rx: 6});
    rect.style.fill = heat_colour(max > 0 ? 0.42 * (total || 0) / max : 0);
    const line = (text, below) => shape('text', {x: x + width / 2, y: y + below, 'text-anchor': 'middle', class: 'strong'}, text);
    return shape('g', {class: 'rank', 'data-rank': rank.rank, 'data-memory': total, click: () => { drawing.focus(); choose(index); }},
      rect, line(`rank ${rank.rank}`, 18), line(total ? bytes_text(total) : '', 33));
  });
  canvas.append(...boxes);
  drawing.append(canvas);

  let chosen = 0;
  function choose(index) {
    boxes[chosen].firstChild.classList.remove('chosen');
    chosen = (index + ranks.length) % ranks.length;
    boxes[chosen].firstChild.classList.add('chosen');
    details.replaceChildren(...rank_details(run.report, ranks[chosen]));
    details.dataset.rank = ranks[chosen].rank;
  }
  drawing.addEventListener('keydown', (event) => {
    const move = arrow_move(event);
    if (move) {
      choose(chosen + move[0] + move[1]);
    }
  });
  choose(0);
  return [card(page.runs.length > 1 ? run.name : 'Ranks', html('div', {class: 'ranks'}, drawing, details),
    run.report.ranks.length > ranks.length ? note(`the first ${ranks.length} of ${run.report.ranks.length} ranks`) : null),
  memory_card(ranks), traffic_card(run.report), efficiency_card(run.report)].filter(Boolean);
}

/** [begin, end) of report.json, counted from 1 as layers are. */
function range_text(range) {
  return Array.isArray(range) ? (range[1] - range[0] === 1 ? `${range[1]}` : `${range[0] + 1} to ${range[1]}`) : '–';
}

function rank_details(report, rank) {
  const stage = (report.stages || [])[rank.pipeline || 0];
  return [html('h3', {}, `Rank ${rank.rank}`), facts_list([
    ['host', rank.host], ['coordinates', mesh_axes.map((axis) => `${axis} ${rank[axis] || 0}`).join(', ')],
    ['layers', stage && stage.layers ? stage.layers.join('; ') : '–'], ['heads', range_text(rank.heads)], ['feed-forward columns', range_text(rank.d_ff)],
    ['rows of the source’s table', range_text(rank.source_vocabulary)], ['rows of the target’s table', range_text(rank.target_vocabulary)],
    rank.chunks && ['chunks of every sequence', rank.chunks.join(' and ')],
    rank.memory && rank.memory.resident && ['resident memory', bytes_text(rank.memory.resident)],
    rank.seconds && ['seconds of computing and of communicating', `${number_text(rank.seconds.computing)} and ${number_text(rank.seconds.communicating)}`],
    ...Object.entries(rank.communication || {}).map(([group, each]) => [`${group} group`, `${bytes_text(each.bytes)}${each.seconds > 0 ? ` in ${number_text(each.seconds)} s` : ', outside steps'}`]),
  ])];
}

/** A bar for each rank, in the parts of its memory. */
function memory_card(ranks) {
  const shown = ranks.filter((rank) => used_memory(rank).total > 0).slice(0, 64);
  if (shown.length === 0) {
    return null;
  }
  const max = Math.max(...shown.map((rank) => used_memory(rank).total));
  const rows = shown.map((rank) => {
    const memory = used_memory(rank);
    const row = bar_row({'data-rank': rank.rank}, `rank ${rank.rank}`, 0, bytes_text(memory.total));
    row.children[1].replaceChildren(...memory_parts.map((part, index) => {
      const piece = html('i', {title: `${part}: ${bytes_text(memory[part] || 0)}`, 'data-part': part, 'data-bytes': memory[part] || 0});
      piece.style.width = `${(memory[part] || 0) / max * 100}%`;
      piece.style.background = series_colour(index);
      return piece;
    }));
    return row;
  });
  return card(shown[0].memory.measured ? 'Measured memory of each rank' : 'Planned memory of each rank', ...rows,
    legend(memory_parts.map((part, index) => [part, series_colour(index)]), 'block'));
}

function traffic_card(report) {
  const rows = Object.entries(report.communication || {}).map(
    ([name, each]) => [name, grouped(each.operations), bytes_text(each.bytes), each.seconds > 0 ? number_text(each.seconds) : '–']);
  return rows.length > 0 ? card('Communication of all ranks', plain_table(['group and collective', 'operations', 'bytes', 'seconds'], rows, [1, 2, 3]),
    html('p', {class: 'axis-note'}, 'Seconds of the steps; –: outside of them.')) : null;
}

function efficiency_card({efficiency, training, energy}) {
  if (!training || !efficiency) {
    return null;
  }
  const percent = (value) => (value === null || value === undefined ? 'unknown' : `${(100 * value).toFixed(1)} %`);
  return card('Efficiency', facts_list([
    ['steps', `${training.first_step} to ${training.last_step}`], ['tokens per second', number_text(training.tokens_per_second)],
    training.node_hours && ['node-hours', `${number_text(training.node_hours)}, ${number_text(training.tokens_per_node_hour)} tokens each`],
    ['load balance', percent(efficiency.load_balance)], ['communication efficiency', percent(efficiency.communication)],
    ['parallel efficiency', percent(efficiency.parallel)], ['computation scaling', percent(efficiency.computation_scaling)],
    ['model FLOP utilisation', percent(efficiency.model_utilisation)],
    ['energy for a million tokens', energy && energy.joules_per_million_tokens ? `${number_text(energy.joules_per_million_tokens)} J (${energy.source})` : 'unknown'],
    efficiency.slowest && ['slowest rank', `${efficiency.slowest.rank} on ${efficiency.slowest.host}`],
  ]));
}
