// Packs without padding, the masks of attention, and datasets.

/** The sides of a pack: a row of tokens each, and the padding that it saves. */
function pack_card(title, sides) {
  return card(title, ...sides.flatMap(({name, lengths, texts}) => {
    const tokens = lengths.reduce((sum, length) => sum + length, 0);
    const padded = lengths.length * Math.max(...lengths);
    const holder = html('div', {class: 'pack', 'data-side': name, 'data-lengths': lengths.join(' ')});
    drawn_to_width(holder, (width) => holder.replaceChildren(packed_strip(lengths, width)));
    return [html('p', {class: 'lead'}, `${name}: ${grouped(tokens)} tokens of ${grouped(lengths.length)} sequences, packed one after another. `
      + `As a padded matrix they would take ${grouped(padded)} places, of which ${(100 * (1 - tokens / padded)).toFixed(0)} % would be padding.`), holder,
      plain_table(['the first ones as the model reads them, with special pieces'], texts.map((text) => [text]))];
  }));
}

function packed_strip(lengths, width) {
  const cell = 8;
  const columns = Math.max(8, Math.floor((width - 4) / cell));
  const tokens = lengths.flatMap((length, sequence) => Array.from({length}, (_, token) => ({length, sequence, token})));
  const cells = tokens.map(({length, sequence, token}, at) => {
    const rect = shape('rect', {x: (at % columns) * cell + 1, y: Math.floor(at / columns) * (cell + 4) + 2, width: cell - 1, height: cell},
      shape('title', {}, `sequence ${sequence + 1}, token ${token + 1} of ${length}`));
    rect.style.fill = series_colour(sequence);
    rect.style.opacity = token === 0 ? 1 : 0.62;
    return rect;
  });
  return shape('svg', {width, height: Math.ceil(tokens.length / columns) * (cell + 4) + 4}, ...cells);
}

function mask_card(mask) {
  const matrix = decoded(mask.matrix);
  const each = mask.positions / matrix.rows;
  const labels = Array.from({length: matrix.rows}, (_, i) => String(Math.round(i * each) + 1));
  const names = mask.sublayers.map(sublayer_name);
  const places = names.length > 3 ? `${names.slice(0, 3).join(', ')} and ${names.length - 3} more` : names.join(', ');
  return card(mask.mask, html('p', {class: 'lead'}, `${places}${mask.prefix > 0 ? `; drawn with a prefix of ${mask.prefix}` : ''}${each > 1 ? `; a cell stands for ${each} × ${each} positions` : ''}`),
    heat_map({
      title: `mask ${mask.mask}`, matrix, rows: labels, columns: labels, share_of: (share) => 0.62 * share, max_cell: 20, min_cell: 4, max_label: 4,
      describe: (row, column, value) => `query ${labels[row]} ${value === 0 ? 'does not see' : value === 1 ? 'sees' : `sees ${(100 * value).toFixed(0)} % of`} key ${labels[column]}`,
    }));
}

function show_packs() {
  const masks = page.model && page.model.masks || [];
  if (masks.length > 0 || page.pack) {
    section('packs', 'Pack and masks', 'No padding is computed: a micro-batch is one row of tokens per side, and attention stays inside each sequence, where a mask says which keys a query sees.', of_run(0))
      .append(page.pack ? pack_card('The first samples', page.pack) : '', html('div', {class: 'grid', style: 'margin-top: 0.9rem'}, ...masks.map(mask_card)));
  }
}

function histogram(side) {
  const holder = html('div', {class: 'histogram', 'data-side': side.name, 'data-counts': side.histogram.map((bin) => bin[2]).join(' ')});
  const readout = html('div', {class: 'readout'});
  const max = Math.max(...side.histogram.map((bin) => bin[2]));
  drawn_to_width(holder, (width) => {
    const height = 150;
    const step = width / side.histogram.length;
    const drawing = shape('svg', {width, height, role: 'img', 'aria-label': `lengths of ${side.name}`});
    side.histogram.forEach(([from, to, samples], bin) => {
      const tall = samples / max * (height - 24);
      const rect = shape('rect', {
        x: bin * step + 0.5, y: height - 18 - tall, width: Math.max(step - 1, 0.5), height: tall, rx: 1,
        pointerenter: () => { readout.textContent = `${from === to ? from : `${from} to ${to}`} tokens: ${grouped(samples)} samples`; },
      });
      rect.style.fill = series_colour(0);
      drawing.append(rect);
      if (bin % Math.ceil(34 / step) === 0) {
        drawing.append(shape('text', {x: bin * step + step / 2, y: height - 4, 'text-anchor': bin === 0 ? 'start' : 'middle'}, String(from)));
      }
    });
    holder.replaceChildren(drawing);
  });
  return card(`${side.name}: ${grouped(side.tokens)} tokens, by length`, holder, readout);
}

function show_datasets() {
  (page.datasets || []).forEach((data, index) => {
    const node = section(`data-${index}`, page.datasets.length > 1 ? data.name.split('/').pop() : 'Data', `${data.name}: ${grouped(data.samples)} ${data.kind}.`, of_run(0));
    node.append(html('div', {class: 'grid'}, ...data.sides.map(histogram)),
      data.findings.length > 0 ? card('The text, as it was prepared', facts_list(data.findings)) : '',
      data.examples.length > 0 ? card('Samples as they are stored, without special pieces', plain_table(data.sides.map((side) => side.name), data.examples)) : '');
  });
}
