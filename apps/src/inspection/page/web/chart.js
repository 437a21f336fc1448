// A chart of curves over steps: drawn to the width that it has, with a cursor for the pointer and the arrow keys.
const chart_margin = {left: 52, right: 12, top: 10, bottom: 24};

/** About `count` round numbers in [min, max]. */
function ticks(min, max, count) {
  const rough = (max - min) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((each) => each >= rough);
  const result = [];
  for (let at = Math.ceil(min / step - 1e-9) * step; at <= max + step * 1e-9; at += step) {
    result.push(Math.abs(at) < step * 1e-9 ? 0 : at);
  }
  return result;
}

/** Powers of ten in [min, max], with 2 and 5 times these where they are few. */
function log_ticks(min, max) {
  const decades = Math.log10(max / min);
  const factors = decades < 1.2 ? [1, 2, 3, 5, 7] : decades < 3 ? [1, 2, 5] : [1];
  const each = Math.max(1, Math.ceil(decades / 6));
  const result = [];
  for (let power = Math.floor(Math.log10(min)); power <= Math.log10(max); ++power) {
    if (((power % each) + each) % each === 0) {
      result.push(...factors.map((factor) => factor * 10 ** power).filter((value) => value >= min * 0.999 && value <= max * 1.001));
    }
  }
  return result;
}

/** Places of labels: both ends, and the round numbers that keep `room` pixels from them. */
function axis_labels([min, max], count, x, room) {
  const inner = ticks(min, max, count).filter((value) => x(value) - x(min) >= room && x(max) - x(value) >= room);
  return max > min ? [min, ...inner, max] : [min];
}

/** Maps [min, max] to [from, to]. */
function scale_of(min, max, from, to, log) {
  const place = log ? Math.log10 : (value) => value;
  const low = place(min);
  const extent = place(max) - low || 1;
  return (value) => from + (place(value) - low) / extent * (to - from);
}

/** The index of the entry of an ascending array that is nearest to `value`. */
function nearest_index(ascending, value) {
  let [low, high] = [0, ascending.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    [low, high] = ascending[middle] <= value ? [middle, high] : [low, middle];
  }
  return Math.abs(ascending[low] - value) <= Math.abs(ascending[high] - value) ? low : high;
}

/** The smallest and the largest number of a list, which may be long. */
function extent(values) {
  return values.reduce(([min, max], value) => [Math.min(min, value), Math.max(max, value)], [Infinity, -Infinity]);
}

/**
 * options: {title, series: [{name, steps, values, not_finite}], height, x_name, log, plain}. The title, the legend of
 * several curves, and the values at the cursor are text beside the drawing. Steps in not_finite, [[first, last], …],
 * have a value that is not finite: there the curve is broken and the drawing shaded.
 */
function line_chart(options) {
  const all = options.series.map((series, index) => ({colour: series_colour(index), not_finite: [], ...series})).filter((series) => series.steps.length > 0);
  const positive = all.every((series) => series.values.every((value) => value > 0));
  let log = Boolean(options.log) && positive;
  let cursor = null;
  const holder = html('div', {class: 'chart', tabindex: 0, 'data-chart': options.title});
  const readout = html('div', {class: 'readout', 'aria-live': 'polite'});
  const toggle = html('button', {type: 'button', 'aria-pressed': String(log), click: () => {
    log = !log;
    toggle.setAttribute('aria-pressed', String(log));
    draw(holder.clientWidth);
  }}, 'log');
  const steps_extent = extent(all.flatMap((series) => [series.steps[0], series.steps.at(-1), ...series.not_finite.flat()]));
  const values_extent = extent(all.flatMap((series) => series.values));

  function show_values() {
    const values = (text_of) => all.map((series) => `${all.length > 1 ? series.name + ' ' : ''}${text_of(series)}`).join(', ');
    if (cursor === null) {
      readout.textContent = options.plain ? '' : `last ${values(last_text)}`;
    } else {
      readout.textContent = `${options.x_name || 'step'} ${number_text(cursor)}: `
        + values((series) => number_text(series.values[nearest_index(series.steps, cursor)]));
    }
  }

  function draw(width) {
    const height = options.height || 200;
    const {left, right, top, bottom} = chart_margin;
    let [min, max] = values_extent;
    if (!log) {
      const room = (max - min) * 0.05 || Math.abs(max) * 0.1 || 1;
      [min, max] = [min >= 0 && min - room < 0 ? 0 : min - room, max + room];
    } else if (min === max) {
      [min, max] = [min / 2, max * 2];
    }
    const x = scale_of(...steps_extent, left, width - right, false);
    const y = scale_of(min, max, height - bottom, top, log);
    const drawing = shape('svg', {width, height, role: 'img', 'aria-label': options.title});
    for (const value of log ? log_ticks(min, max) : ticks(min, max, 4)) {
      drawing.append(shape('line', {class: 'gridline', x1: left, x2: width - right, y1: y(value), y2: y(value)}),
        shape('text', {x: left - 6, y: y(value) + 4, 'text-anchor': 'end'}, number_text(value)));
    }
    for (const value of axis_labels(steps_extent, Math.max(2, Math.floor(width / 110)), x, 48)) {
      drawing.append(shape('text', {'data-step': value, x: x(value), y: height - 7, 'text-anchor': x(value) > width - 30 ? 'end' : 'middle'}, number_text(value)));
    }
    drawing.append(shape('line', {class: 'axis', x1: left, x2: width - right, y1: height - bottom, y2: height - bottom}));
    for (const [first, last] of all.flatMap((series) => series.not_finite)) {
      drawing.append(shape('rect', {class: 'not-finite', 'data-first': first, 'data-last': last, x: x(first) - 1, y: top,
        width: x(last) - x(first) + 2, height: height - bottom - top}, shape('title', {}, not_finite_text([first, last]))));
    }
    all.forEach((series) => drawing.append(curve(series, x, y)));
    const line = shape('line', {class: 'cursor', y1: top, y2: height - bottom, visibility: 'hidden'});
    drawing.append(line);
    const show = () => {
      if (cursor !== null) {
        fill(line, {x1: x(cursor), x2: x(cursor), visibility: 'visible'}, []);
      }
      show_values();
    };
    const longest = all.reduce((best, series) => (series.steps.length > best.steps.length ? series : best));
    drawing.addEventListener('pointermove', (event) => {
      const at = event.clientX - drawing.getBoundingClientRect().left;
      const step = steps_extent[0] + (at - left) / (width - left - right) * (steps_extent[1] - steps_extent[0]);
      cursor = longest.steps[nearest_index(longest.steps, step)];
      show();
    });
    holder.onkeydown = (event) => {
      const move = {ArrowRight: 1, ArrowLeft: -1, PageDown: 20, PageUp: -20, Home: -Infinity, End: Infinity}[event.key];
      if (move) {
        event.preventDefault();
        const from = cursor === null ? (move > 0 ? -1 : longest.steps.length) : nearest_index(longest.steps, cursor);
        cursor = longest.steps[Math.min(Math.max(from + move, 0), longest.steps.length - 1)];
        show();
      }
    };
    holder.replaceChildren(drawing);
    show();
  }
  drawn_to_width(holder, draw);
  show_values();
  return html('div', {class: 'card'},
    html('div', {class: 'card-head'}, html('h3', {}, options.title), positive && !options.plain ? toggle : null), holder, readout,
    legend(all.length > 1 ? all.map((series) => [series.name, series.colour]) : []));
}

function not_finite_text([first, last]) {
  return first === last ? `not finite at step ${number_text(first)}` : `not finite from step ${number_text(first)} to ${number_text(last)}`;
}

/** The last value, or since when it is not finite. */
function last_text(series) {
  const end = (series.not_finite || []).at(-1);
  return end && end[0] > series.steps.at(-1) ? `not finite since step ${number_text(end[0])}` : number_text(series.values.at(-1));
}

/** A curve, in several lines between which its value is not finite; of few points each has a dot. */
function curve(series, x, y) {
  const lines = new Map();
  series.steps.forEach((step, i) => {
    const line = series.not_finite.filter(([first]) => first < step).length;
    lines.set(line, `${lines.get(line) || ''} ${x(step).toFixed(1)},${y(series.values[i]).toFixed(1)}`);
  });
  const [min, max] = extent(series.values);
  const drawn = [...lines.values()].map((points, line) => shape('polyline', {class: 'curve', points, ...(line > 0 ? {} : {
    'data-series': series.name, 'data-count': series.values.length, 'data-first': series.values[0], 'data-last': series.values.at(-1), 'data-min': min, 'data-max': max,
  })}));
  drawn.forEach((line) => { line.style.stroke = series.colour; });
  const dots = series.steps.length <= 30 ? series.steps.map((step, i) => shape('circle', {cx: x(step), cy: y(series.values[i]), r: 2.6})) : [];
  dots.forEach((dot) => { dot.style.fill = series.colour; });
  return shape('g', {}, ...drawn, ...dots);
}
