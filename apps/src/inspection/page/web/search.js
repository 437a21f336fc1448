// The tree of a beam search: a column for each step, a node for each hypothesis that was ranked.
const search_step_width = 92;
const search_left = 30;
const search_row_height = 34;

function show_search() {
  const sentences = (page.model && page.model.sentences || []).filter((sentence) => sentence.search && sentence.search.nodes);
  if (sentences.length === 0) {
    return;
  }
  const node = section('search', 'Beam search', 'Every hypothesis that the search ranked, step by step: kept ones continue, squares are finished, '
    + 'small faint ones were dropped. A node shows its token; its tooltip the log-probability so far.', of_run(0));
  const holder = html('div', {class: 'card'});
  node.append(html('div', {class: 'controls'}, menu('Sentence', sentences.map(sentence_title), (index) => show_tree(sentences[index].search, holder))), holder);
}

/** Nodes with their places: those of a step from the top in the order of their rank. */
function placed_nodes(search) {
  const used = [];
  return search.nodes.map(([parent, piece, step, log_probability, fate], index) => {
    used[step] = (used[step] || 0) + 1;
    return {index, parent, piece, step, log_probability, fate, x: search_left + step * search_step_width, y: 26 + (used[step] - 1) * search_row_height};
  });
}

function show_tree(search, holder) {
  const nodes = placed_nodes(search);
  const drawing = shape('svg', {width: 70 + Math.max(...nodes.map((node) => node.x)), height: 24 + Math.max(...nodes.map((node) => node.y)), role: 'img', 'aria-label': 'tree of hypotheses'});
  const edges = nodes.filter((node) => node.parent >= 0).map((node) => {
    const from = nodes[node.parent];
    const middle = (from.x + node.x) / 2;
    return shape('path', {d: `M${from.x},${from.y} C${middle},${from.y} ${middle},${node.y} ${node.x},${node.y}`, fill: 'none', 'data-node': node.index});
  });
  const marks = nodes.map((node) => {
    const name = node.piece === '' ? 'begin' : piece_text(node.piece);
    const title = shape('title', {}, `${name}: log-probability ${node.log_probability.toFixed(4)}, ${node.fate}`);
    const size = node.fate === 'dropped' ? 2.5 : 5;
    const mark = node.fate === 'finished'
      ? shape('rect', {x: node.x - size, y: node.y - size, width: 2 * size, height: 2 * size, rx: 1}, title)
      : shape('circle', {cx: node.x, cy: node.y, r: size}, title);
    const label = shape('text', {x: node.x, y: node.y - 9, 'text-anchor': 'middle', class: node.fate === 'dropped' ? '' : 'strong'}, shortened(name, 12));
    return shape('g', {'data-node': node.index, 'data-piece': node.piece, 'data-fate': node.fate}, mark, label);
  });
  drawing.append(...edges, ...marks);

  function highlight(index) {
    const path = new Set([0, ...search.hypotheses[index].path]);
    for (const edge of edges) {
      const on = path.has(Number(edge.dataset.node));
      const dropped = nodes[edge.dataset.node].fate === 'dropped';
      edge.style.stroke = on ? 'var(--series-2)' : 'var(--muted)';
      edge.style.opacity = on ? 1 : dropped ? 0.25 : 0.55;
      edge.style.strokeWidth = on ? 2.4 : dropped ? 0.8 : 1.3;
    }
    for (const mark of marks) {
      const fate = mark.dataset.fate;
      mark.firstChild.style.fill = path.has(Number(mark.dataset.node)) ? 'var(--series-2)' : fate === 'dropped' ? 'var(--muted)' : 'var(--series-1)';
      mark.style.opacity = fate === 'dropped' ? 0.45 : 1;
    }
  }
  const names = search.hypotheses.map((hypothesis) => `${hypothesis.score.toFixed(3)}  ${hypothesis.text || '(empty)'}`);
  const box = html('div', {class: 'scroll', tabindex: 0, 'aria-label': 'Tree'}, drawing);
  const steps = Math.max(...nodes.map((node) => node.step));
  const note_of = (from, to) => {
    const first = Math.max(1, Math.ceil((from - search_left) / search_step_width));
    const last = Math.min(steps, Math.floor((to - search_left) / search_step_width));
    return `The graph is cut: steps ${first} to ${last} of ${steps} are in view. Scroll sideways, also by the arrow keys, to see the others.`;
  };
  holder.replaceChildren(html('h3', {}, 'Finished hypotheses, by their score'), choices('Hypotheses', names, highlight), box, cut_note(box, note_of));
}
