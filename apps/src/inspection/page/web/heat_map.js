// A heat map with labels on its axes: a cell can be chosen by the pointer and by the arrow keys.

/**
 * options: {matrix, rows: labels, columns: labels, share_of, describe(row, column, value), most_cell, title}. Labels
 * are drawn as far as they have room.
 */
function heat_map(options) {
  const {matrix} = options;
  const holder = html('div', {class: 'scroll', tabindex: 0, 'aria-label': options.title, 'data-heat-map': options.title});
  const readout = html('div', {class: 'readout', 'aria-live': 'polite'});
  let chosen = null;
  let cells = [];

  function choose(row, column) {
    if (chosen) {
      cells[chosen.row * matrix.columns + chosen.column].classList.remove('chosen');
    }
    chosen = {row: Math.min(Math.max(row, 0), matrix.rows - 1), column: Math.min(Math.max(column, 0), matrix.columns - 1)};
    const cell = cells[chosen.row * matrix.columns + chosen.column];
    cell.classList.add('chosen');
    cell.parentNode.append(cell);
    readout.textContent = options.describe(chosen.row, chosen.column, matrix.values[chosen.row * matrix.columns + chosen.column]);
  }

  function draw(width) {
    const longest = (labels) => Math.max(...labels.map((label) => Array.from(label).length));
    const left = Math.min(12 + 6.6 * Math.min(longest(options.rows), options.most_label || 16), width * 0.4);
    const top = 12 + 5.2 * Math.min(longest(options.columns), options.most_label || 16);
    const cell = Math.max(Math.min((width - left - 14) / matrix.columns, options.most_cell || 26), options.least_cell || 3);
    const tall = cell * (options.tall || 1);
    const drawing = shape('svg', {width: Math.ceil(left + cell * matrix.columns + 14 + top * 0.6), height: Math.ceil(top + tall * matrix.rows + 6)});
    const group = shape('g');
    cells = Array.from(matrix.values, (value, i) => {
      const [row, column] = [Math.floor(i / matrix.columns), i % matrix.columns];
      const rect = shape('rect', {
        x: (left + column * cell).toFixed(2), y: (top + row * tall).toFixed(2), width: Math.max(cell - (cell > 6 ? 1 : 0), 1), height: Math.max(tall - (tall > 6 ? 1 : 0), 1),
        rx: cell > 10 ? 2 : 0, 'data-row': row, 'data-column': column, 'data-value': value, click: () => { holder.focus(); choose(row, column); },
        pointerenter: () => { readout.textContent = options.describe(row, column, value); },
      });
      rect.style.fill = Number.isFinite(value) ? heat_colour(options.share_of(value)) : 'transparent';
      return rect;
    });
    group.append(...cells);
    drawing.append(group, ...row_labels(tall, left, top), ...column_labels(cell, left, top));
    holder.replaceChildren(drawing);
    if (chosen) {
      choose(chosen.row, chosen.column);
    }
  }

  const every = (size) => Math.max(1, Math.ceil(12.5 / size));
  function row_labels(cell, left, top) {
    return options.rows.map((label, row) => row % every(cell) !== 0 ? null : shape('text', {
      x: left - 6, y: top + (row + 0.5) * cell + 4, 'text-anchor': 'end', class: 'strong',
    }, shortened(label, options.most_label || 16))).filter(Boolean);
  }
  function column_labels(cell, left, top) {
    return options.columns.map((label, column) => {
      const [x, y] = [left + (column + 0.5) * cell + 3, top - 6];
      return column % every(cell) !== 0 ? null : shape('text', {
        x, y, class: 'strong', transform: `rotate(-55 ${x} ${y})`,
      }, shortened(label, options.most_label || 16));
    }).filter(Boolean);
  }

  holder.addEventListener('keydown', (event) => {
    const move = {ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0]}[event.key];
    if (move) {
      event.preventDefault();
      choose(...(chosen ? [chosen.row + move[0], chosen.column + move[1]] : [0, 0]));
    }
  });
  const outer = html('div', {}, holder, readout);
  drawn_to_width(outer, draw);
  return outer;
}
