// A heat map with labels on its axes: a cell can be chosen by the pointer and by the arrow keys.

/**
 * options: {matrix, rows: labels, columns: labels, share_of, describe(row, column, value), title, max_cell, min_cell,
 * row_height (default: cells are square), max_label}. Labels are drawn as far as they have room; those of rows that have
 * too little are set narrower. The map is no wider than its largest cells make it.
 */
function heat_map(options) {
  const {matrix, max_cell = 26, min_cell = 3, row_height, max_label = 16} = options;
  const holder = html('div', {class: 'scroll', tabindex: 0, 'aria-label': options.title, 'data-heat-map': options.title});
  const readout = html('div', {class: 'readout', 'aria-live': 'polite'});
  let chosen = null;
  let cells = [];

  const index_of = ([row, column]) => row * matrix.columns + column;
  const show = (row, column) => { readout.textContent = options.describe(row, column, matrix.values[index_of([row, column])]); };

  function choose(row, column) {
    if (chosen) {
      cells[index_of(chosen)].classList.remove('chosen');
    }
    chosen = [Math.min(Math.max(row, 0), matrix.rows - 1), Math.min(Math.max(column, 0), matrix.columns - 1)];
    const cell = cells[index_of(chosen)];
    cell.classList.add('chosen');
    cell.parentNode.append(cell);
    show(...chosen);
  }

  const longest = (labels) => Math.min(max_label, Math.max(...labels.map((label) => Array.from(label).length)));
  const room = 12 + 6.6 * longest(options.rows);
  const top = 12 + 5.2 * longest(options.columns);

  function draw(width) {
    const left = Math.min(room, width * 0.5);
    const cell = Math.max(Math.min((width - left - 14 - top * 0.6) / matrix.columns, max_cell), min_cell);
    const height = row_height || cell;
    const drawing = shape('svg', {width: Math.ceil(left + cell * matrix.columns + 14 + top * 0.6), height: Math.ceil(top + height * matrix.rows + 6)});
    const inside = (size) => Math.max(size - (size > 6 ? 1 : 0), 1);
    cells = Array.from(matrix.values, (value, i) => {
      const [row, column] = [Math.floor(i / matrix.columns), i % matrix.columns];
      const rect = shape('rect', {
        x: (left + column * cell).toFixed(2), y: (top + row * height).toFixed(2), width: inside(cell), height: inside(height), rx: cell > 10 ? 2 : 0,
        'data-row': row, 'data-column': column, 'data-value': value,
        click: () => { holder.focus(); choose(row, column); }, pointerenter: () => show(row, column),
      });
      rect.style.fill = Number.isFinite(value) ? heat_colour(options.share_of(value)) : 'transparent';
      return rect;
    });
    const labels = (texts, size, attributes) => texts.map((text, i) => [shortened(text, max_label), i])
      .filter(([, i]) => i % Math.max(1, Math.ceil(12.5 / size)) === 0).map(([text, i]) => shape('text', {class: 'strong', ...attributes(i)}, text));
    drawing.append(shape('g', {}, ...cells),
      ...labels(options.rows, height, (row) => ({x: left - 6, y: top + (row + 0.5) * height + 4, 'text-anchor': 'end', 'data-label': row})),
      ...labels(options.columns, cell, (column) => {
        const [x, y] = [left + (column + 0.5) * cell + 3, top - 6];
        return {x, y, transform: `rotate(-55 ${x} ${y})`};
      }));
    holder.replaceChildren(drawing);
    drawing.querySelectorAll('[data-label]').forEach((label) => {
      if (label.getComputedTextLength() > left - 8) {
        fill(label, {textLength: Math.floor(left - 8), lengthAdjust: 'spacingAndGlyphs'}, []);
      }
    });
    if (chosen) {
      choose(...chosen);
    }
  }

  holder.addEventListener('keydown', (event) => {
    const move = arrow_move(event);
    if (move) {
      choose(...(chosen ? [chosen[0] + move[0], chosen[1] + move[1]] : [0, 0]));
    }
  });
  const outer = html('div', {class: 'map', style: `width: ${Math.ceil(room + max_cell * matrix.columns + 14 + top * 0.6)}px`}, holder, readout);
  drawn_to_width(outer, draw);
  return outer;
}
