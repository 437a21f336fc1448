// A chart of curves: drawn to the width that it has, with a cursor for the pointer and the arrow keys.
const chart_margin = {left: 52, right: 12, top: 10, bottom: 24};
const letter_width = 7.2;  // of the charts' text, rather too much than too little

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

/**
 * Labels below a chart that keep apart: both ends, and the round numbers between them that have room. `x` maps [min, max]
 * to pixels in [0, width]; a label is {value, text, left, right}.
 */
function axis_labels([min, max], x, width, text_of) {
  const gap = 10;
  const label = (value) => {
    const text = text_of(value);
    const extent = text.length * letter_width;
    const left = Math.min(Math.max(x(value) - extent / 2, 0), width - extent);
    return {value, text, left, right: left + extent};
  };
  const [first, last] = [label(min), label(max)];
  if (!(max > min) || first.right + gap > last.left) {
    return [last];
  }
  const kept = [first];
  for (const value of ticks(min, max, Math.max(2, Math.floor(width / 90)))) {
    const next = label(value);
    if (next.left >= kept.at(-1).right + gap && next.right + gap <= last.left) {
      kept.push(next);
    }
  }
  return [...kept, last];
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

/** The value at `x` of the line through the points (xs, ys), xs ascending; beyond its ends that of the end. */
function interpolated(xs, ys, x) {
  const near = nearest_index(xs, x);
  const from = xs[near] > x ? near - 1 : near;
  if (from < 0 || from + 1 >= xs.length) {
    return ys[near];
  }
  const part = (x - xs[from]) / (xs[from + 1] - xs[from]);
  return ys[from] + part * (ys[from + 1] - ys[from]);
}

/**
 * The exponential moving average of values: from point to point the past keeps the share `weight` in [0, 1). The first
 * values count as a mean over what there is, not as if zeros came before them.
 */
function smoothed(values, weight) {
  let [sum, share] = [0, 0];
  return values.map((value) => {
    sum = weight * sum + (1 - weight) * value;
    share = weight * share + (1 - weight);
    return sum / share;
  });
}

const step_axis = {text: number_text, at: (step) => `step ${number_text(step)}`};

/** Makes a list of curves ready to be drawn: colours, places on the axis, and the values before they were smoothed. */
function placed_series(list) {
  return list.map((series, index) => ({colour: series_colour(index), dashed: index >= colours, not_finite: [], x_of: (step) => step, raw: series.values, ...series}))
    .filter((series) => series.steps.length > 0)
    .map((series) => ({...series, xs: series.steps.map(series.x_of)}));
}

/**
 * A chart of the curves that options.series() returns: [{name, steps, values, not_finite, raw, x_of, ends}]. `raw` are the
 * values before smoothing, drawn faintly; x_of maps a step to its place on the axis. Steps in not_finite, [[first, last], …],
 * have a value that is not finite: there the curve is broken and the drawing shaded. `ends` says why a curve ends early.
 * Further options: title(), log() (whether the vertical axis is logarithmic until the reader chooses), axis() ({text, at}: a
 * place as label and as phrase), marks() ([{x, text, title, start}], vertical lines; `start` is the colour of those for starts
 * of a run), height, plain (without button and last values), and redraw, a list to which the function is added that draws the
 * chart again after a change of what these functions return.
 */
function line_chart(options) {
  let all = placed_series(options.series());
  let chosen_log = null;
  let cursor = null;
  const holder = html('div', {class: 'chart', tabindex: 0});
  const heading = html('h3');
  const readout = html('div', {class: 'readout', 'aria-live': 'polite'});
  const axis = () => (options.axis ? options.axis() : step_axis);
  const positive = () => all.every((series) => series.raw.every((value) => value > 0));
  const log = () => positive() && (chosen_log === null ? Boolean(options.log && options.log()) : chosen_log);
  const toggle = html('button', {type: 'button', click: () => {
    chosen_log = !log();
    draw(holder.clientWidth);
  }}, 'log');

  /** The values at the cursor, else the last ones: of several curves they are the legend. */
  function show_values() {
    const value_of = (series) => {
      const index = cursor === null ? series.xs.length - 1 : nearest_index(series.xs, cursor);
      const text = cursor === null ? last_text(series) : number_text(series.raw[index]);
      return series.raw === series.values ? text : `${text} (smoothed ${number_text(series.values[index])})`;
    };
    const place = cursor === null ? (options.plain ? '' : 'last ') : `${axis().at(cursor)}: `;
    const value = (series) => (options.plain && cursor === null ? '' : value_of(series));
    if (all.length === 1) {
      readout.replaceChildren(place, value(all[0]));
    } else {
      readout.replaceChildren(legend(all.map((series) => [`${series.name} ${value(series)}`, series.colour, series.dashed])));
      readout.firstChild.prepend(place);
    }
    if (cursor === null) {
      readout.append(...ends_of(all));
    }
  }

  function draw(width) {
    const title = options.title();
    heading.textContent = title;
    holder.dataset.chart = title;
    toggle.hidden = !positive();
    toggle.setAttribute('aria-pressed', String(log()));
    const chart = chart_frame(all, {width, height: options.height || 200, title, log: log(), axis: axis(), marks: options.marks ? options.marks() : []});
    const show = () => {
      chart.point_at(cursor);
      show_values();
    };
    const longest = all.reduce((best, series) => (series.xs.length > best.xs.length ? series : best));
    chart.drawing.addEventListener('pointermove', (event) => {
      cursor = longest.xs[nearest_index(longest.xs, chart.place_of(event.clientX - chart.drawing.getBoundingClientRect().left))];
      show();
    });
    holder.onkeydown = (event) => {
      const move = {ArrowRight: 1, ArrowLeft: -1, PageDown: 20, PageUp: -20, Home: -Infinity, End: Infinity}[event.key];
      if (move) {
        event.preventDefault();
        const from = cursor === null ? (move > 0 ? -1 : longest.xs.length) : nearest_index(longest.xs, cursor);
        cursor = longest.xs[Math.min(Math.max(from + move, 0), longest.xs.length - 1)];
        show();
      }
    };
    holder.replaceChildren(chart.drawing);
    show();
  }
  if (options.redraw) {
    options.redraw.push(() => {
      all = placed_series(options.series());
      cursor = null;
      draw(holder.clientWidth);
    });
  }
  drawn_to_width(holder, draw);
  return html('div', {class: options.wide ? 'card whole-row' : 'card'},
    html('div', {class: 'card-head'}, heading, options.plain ? null : toggle), holder, readout);
}

/** Why curves end early, each reason once: with the names of its curves unless it is that of all. */
function ends_of(all) {
  const names_by_end = new Map();
  all.filter(({ends}) => ends).forEach(({name, ends}) => names_by_end.set(ends, [...(names_by_end.get(ends) || []), name]));
  return [...names_by_end].map(([ends, names]) => html('div', {class: 'ends'}, names.length === all.length ? ends : `${listed(names)}: ${ends}`));
}

/** The drawing of a chart: {drawing, place_of(pixel), point_at(place or null)}. */
function chart_frame(all, {width, height, title, log, axis, marks}) {
  const {left, right, top, bottom} = chart_margin;
  const places = extent(all.flatMap((series) => [series.xs[0], series.xs.at(-1), ...series.not_finite.flat().map(series.x_of)]));
  let [min, max] = extent(all.flatMap((series) => series.raw));
  if (!log) {
    const room = (max - min) * 0.05 || Math.abs(max) * 0.1 || 1;
    [min, max] = [min >= 0 && min - room < 0 ? 0 : min - room, max + room];
  } else if (min === max) {
    [min, max] = [min / 2, max * 2];
  }
  const x = scale_of(...places, left, width - right, false);
  const y = scale_of(min, max, height - bottom, top, log);
  const drawing = shape('svg', {width, height, role: 'img', 'aria-label': title});
  for (const value of log ? log_ticks(min, max) : ticks(min, max, 4)) {
    drawing.append(shape('line', {class: 'gridline', x1: left, x2: width - right, y1: y(value), y2: y(value)}),
      shape('text', {x: left - 6, y: y(value) + 4, 'text-anchor': 'end'}, number_text(value)));
  }
  for (const label of axis_labels(places, x, width, axis.text)) {
    drawing.append(shape('text', {'data-place': label.value, x: (label.left + label.right) / 2, y: height - 7, 'text-anchor': 'middle'}, label.text));
  }
  drawing.append(shape('line', {class: 'axis', x1: left, x2: width - right, y1: height - bottom, y2: height - bottom}));
  const in_view = marks.filter((mark) => mark.x >= places[0] && mark.x <= places[1]);
  drawing.append(...mark_lines(in_view.filter((mark) => !mark.start), x, {top, bottom: height - bottom, right: width, room: 22, stride: Math.ceil(marks.length / Math.max(1, width / 60))}),
    ...mark_lines(in_view.filter((mark) => mark.start), x, {top, bottom: height - bottom, right: width, room: 40, below: 10, stride: 1}));
  for (const series of all) {
    for (const [first, last] of series.not_finite) {
      drawing.append(shape('rect', {class: 'not-finite', 'data-first': first, 'data-last': last, x: x(series.x_of(first)) - 1, y: top,
        width: x(series.x_of(last)) - x(series.x_of(first)) + 2, height: height - bottom - top}, shape('title', {}, not_finite_text([first, last]))));
    }
  }
  all.forEach((series) => drawing.append(curve(series, x, y)));
  const line = shape('line', {class: 'cursor', y1: top, y2: height - bottom, visibility: 'hidden'});
  drawing.append(line);
  return {
    drawing,
    place_of: (pixel) => places[0] + (pixel - left) / (width - left - right) * (places[1] - places[0]),
    point_at: (place) => fill(line, place === null ? {visibility: 'hidden'} : {x1: x(place), x2: x(place), visibility: 'visible'}, []),
  };
}

/** Vertical lines, of many each stride-th one; labels that would be nearer than `room` to the one before are left out. */
function mark_lines(marks, x, {top, bottom, right, room, stride, below = 0}) {
  let labelled = -Infinity;
  return marks.filter((_, index) => (index + 1) % stride === 0).map((mark) => {
    const label = x(mark.x) - labelled >= room ? [shape('text', {...(x(mark.x) + room > right ? {x: x(mark.x) - 3, 'text-anchor': 'end'} : {x: x(mark.x) + 3}), y: top + 7 + below}, mark.text)] : [];
    labelled = label.length > 0 ? x(mark.x) : labelled;
    const line = shape('line', {x1: x(mark.x), x2: x(mark.x), y1: top, y2: bottom});
    line.style.stroke = mark.start || '';
    return shape('g', mark.start ? {class: 'start-line', 'data-start': mark.text} : {class: 'mark-line', 'data-mark': mark.text},
      shape('title', {}, mark.title), line, ...label);
  });
}

function not_finite_text([first, last]) {
  return first === last ? `not finite at step ${number_text(first)}` : `not finite from step ${number_text(first)} to ${number_text(last)}`;
}

/** The last value, or since when it is not finite. */
function last_text(series) {
  const end = (series.not_finite || []).at(-1);
  return end && end[0] > series.steps.at(-1) ? `not finite since step ${number_text(end[0])}` : number_text((series.raw || series.values).at(-1));
}

/** The points of a curve as texts for polylines, between which its value is not finite. */
function curve_lines(series, values, x, y) {
  const lines = new Map();
  series.steps.forEach((step, i) => {
    const line = series.not_finite.filter(([first]) => first < step).length;
    lines.set(line, `${lines.get(line) || ''} ${x(series.xs[i]).toFixed(1)},${y(values[i]).toFixed(1)}`);
  });
  return [...lines.values()];
}

/** A curve, below it faintly its values before smoothing; of few points each has a dot. */
function curve(series, x, y) {
  const [min, max] = extent(series.values);
  const data = {'data-series': series.name, 'data-count': series.values.length, 'data-first': series.values[0], 'data-last': series.values.at(-1), 'data-min': min, 'data-max': max};
  const drawn = curve_lines(series, series.values, x, y).map((points, line) => shape('polyline', {class: 'curve', points, ...(line > 0 ? {} : data)}));
  const faint = series.raw === series.values ? [] : curve_lines(series, series.raw, x, y).map((points) => shape('polyline', {class: 'curve faint', points}));
  [...faint, ...drawn].forEach((line) => {
    line.style.stroke = series.colour;
    line.style.strokeDasharray = series.dashed ? '6 3' : '';
  });
  const dots = series.steps.length <= 30 ? series.xs.map((place, i) => shape('circle', {cx: x(place), cy: y(series.values[i]), r: 2.6})) : [];
  dots.forEach((dot) => { dot.style.fill = series.colour; });
  return shape('g', {}, ...faint, ...drawn, ...dots);
}
