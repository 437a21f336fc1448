// The colours of heat maps. Light and dark are the system's choice.
const redrawn_with_theme = [];
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => redrawn_with_theme.forEach((draw) => draw()));

/** A CSS colour for `share` in [-1, 1]: 0 is the panel's own colour. */
function heat_colour(share) {
  const side = share < 0 ? 'cold' : 'heat';
  const size = Math.min(Math.abs(share), 1);
  const percent = (part) => `${(100 * part).toFixed(1)}%`;
  return size < 0.5
    ? `color-mix(in srgb, var(--${side}-middle) ${percent(2 * size)}, var(--panel))`
    : `color-mix(in srgb, var(--${side}-high) ${percent(2 * size - 1)}, var(--${side}-middle))`;
}

/** The same as [red, green, blue] for canvases, in the present theme. */
function heat_ramp() {
  const probe = document.body.appendChild(html('i'));
  const colour = (name) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color.match(/\d+/g).map(Number);
  };
  const panel = colour('--panel');
  const sides = {heat: [colour('--heat-middle'), colour('--heat-high')], cold: [colour('--cold-middle'), colour('--cold-high')]};
  probe.remove();
  return (share) => {
    const [middle, high] = sides[share < 0 ? 'cold' : 'heat'];
    const size = Math.min(Math.abs(share), 1);
    const [from, to, part] = size < 0.5 ? [panel, middle, 2 * size] : [middle, high, 2 * size - 1];
    return from.map((start, i) => Math.round(start + (to[i] - start) * part));
  };
}

/** Draws values [rows, columns] on a canvas, a pixel each, now and with every change of colours. */
function paint_matrix(canvas, matrix, share_of) {
  canvas.width = matrix.columns;
  canvas.height = matrix.rows;
  const paint = () => {
    const ramp = heat_ramp();
    const context = canvas.getContext('2d');
    const image = context.createImageData(matrix.columns, matrix.rows);
    matrix.values.forEach((value, i) => {
      image.data.set([...ramp(share_of(value)), 255], 4 * i);
    });
    context.putImageData(image, 0, 0);
  };
  redrawn_with_theme.push(paint);
  paint();
}

/** A strip that explains the colours between two values. */
function ramp_legend(min, max, share_of) {
  const stops = Array.from({length: 11}, (_, i) => heat_colour(share_of(min + (max - min) * i / 10)));
  const strip = html('i', {class: 'ramp'});
  strip.style.background = `linear-gradient(90deg, ${stops.join(', ')})`;
  return html('div', {class: 'legend'}, html('span', {}, number_text(min), strip, number_text(max)));
}
