// The schedule of one step as a Gantt chart: a lane for each rank, from the time stamps of trace.json.
const lane_height = 34;
const pass_colours = {forward: 'var(--series-1)', backward: 'var(--series-3)', weights: 'var(--series-6)'};
const wait_colours = {communication: 'var(--series-2)', waiting: 'var(--series-5)', data: 'var(--series-4)'};

function show_schedule() {
  const runs = (page.runs || []).filter((run) => run.schedule);
  if (runs.length > 0) {
    section('schedule', 'Schedule', 'One step from real time stamps: above, each pass of a micro-batch through a part of the model (its number in the box); below, '
      + 'communication, and waiting for transfers that were started before. Scroll or use + and − to see more.').append(...runs.map(schedule_card));
  }
}

function schedule_card(run) {
  const {schedule} = run;
  const readout = html('div', {class: 'readout', 'aria-live': 'polite'});
  const holder = html('div', {class: 'scroll', tabindex: 0, 'aria-label': `schedule of ${run.name}`, 'data-schedule': schedule.step});
  let zoom = 1;
  let width = 0;
  const milliseconds = (microseconds) => `${number_text(microseconds / 1000)} ms`;

  function describe(lane, event) {
    const known = (value, text) => (value === undefined ? '' : text);
    return [
      `${lane.name}: ${event.name}`, known(event.micro_batch, `micro-batch ${event.micro_batch}`), known(event.part, `part ${event.part}`),
      known(event.bytes, bytes_text(event.bytes)), known(event.peer, `with rank ${event.peer}`), `from ${milliseconds(event.begin)}, ${milliseconds(event.duration)} long`,
    ].filter(Boolean).join(', ');
  }

  function draw() {
    const left = 64;
    const total = (width - left - 10) * zoom;
    const x = (time) => left + time / schedule.duration * total;
    const height = schedule.lanes.length * lane_height + 28;
    const drawing = shape('svg', {width: left + total + 10, height, role: 'img', 'aria-label': `schedule of ${schedule.step}`});
    for (const time of ticks(0, schedule.duration / 1000, Math.max(2, Math.floor(total / 110)))) {
      drawing.append(shape('line', {class: 'gridline', x1: x(time * 1000), x2: x(time * 1000), y1: 4, y2: height - 22}),
        shape('text', {x: x(time * 1000), y: height - 7, 'text-anchor': 'middle'}, number_text(time)));
    }
    schedule.lanes.forEach((lane, row) => {
      const y = row * lane_height + 6;
      drawing.append(shape('text', {x: 2, y: y + 16, class: 'strong'}, `rank ${lane.rank}`));
      for (const event of lane.events) {
        const pass = event.kind === 'pass';
        const extent = x(event.begin + event.duration) - x(event.begin);
        const rect = shape('rect', {
          x: x(event.begin).toFixed(2), y: pass ? y : y + 20, width: Math.max(extent, 0.5).toFixed(2), height: pass ? 18 : 7, rx: pass ? 2 : 0,
          'data-rank': lane.rank, 'data-kind': event.kind, 'data-begin': event.begin, 'data-duration': event.duration, pointerenter: () => { readout.textContent = describe(lane, event); },
        });
        rect.style.fill = pass ? pass_colours[event.name] || 'var(--series-8)' : wait_colours[event.kind] || 'var(--series-8)';
        rect.style.stroke = pass ? 'var(--panel)' : 'none';
        drawing.append(rect);
        if (pass && event.micro_batch !== undefined && extent > 16) {
          const text = shape('text', {x: x(event.begin + event.duration / 2), y: y + 13, 'text-anchor': 'middle', 'pointer-events': 'none'}, String(event.micro_batch));
          text.style.fill = 'var(--panel)';
          drawing.append(text);
        }
      }
    });
    holder.replaceChildren(drawing);
  }
  function zoom_by(factor) {
    zoom = Math.min(Math.max(zoom * factor, 1), 64);
    draw();
  }
  holder.addEventListener('keydown', (event) => {
    if (event.key === '+' || event.key === '-') {
      zoom_by(event.key === '+' ? 1.5 : 1 / 1.5);
    }
  });
  const outer = html('div', {class: 'card'},
    html('div', {class: 'card-head'}, html('h3', {}, `${page.runs.length > 1 ? `${run.name}, ` : ''}${schedule.step}: ${milliseconds(schedule.duration)}`),
      html('div', {}, html('button', {type: 'button', 'aria-label': 'wider', click: () => zoom_by(1.5)}, '+'), ' ', html('button', {type: 'button', 'aria-label': 'narrower', click: () => zoom_by(1 / 1.5)}, '−'))),
    holder, readout, legend([...Object.entries({...pass_colours, ...wait_colours}), ['time in milliseconds', 'none']], 'block'));
  drawn_to_width(holder, (available) => {
    width = available;
    draw();
  });
  return outer;
}
