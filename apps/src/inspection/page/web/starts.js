// The starts of a run, as report.json has them: where it was resumed, with which layout, and how each start ended.

/** "8 ranks: pipeline 2, tensor 4" */
function layout_text(layout) {
  const axes = mesh_axes.filter((axis) => layout[axis] > 1).map((axis) => `${axis} ${layout[axis]}`);
  return `${layout.ranks || 1} rank${layout.ranks > 1 ? 's' : ''}${axes.length > 0 ? `: ${axes.join(', ')}` : ''}`;
}

/** How a start ended, by the state in its report. */
function state_text(state) {
  return {done: 'all steps were made', 'stopped early': 'early stopping', training: 'killed, ended by an error, or still training'}[state] || state || 'unknown';
}

/** The last step of any of the run's curves. */
function last_step(run) {
  return Math.max(0, ...Object.values(series_of(run)).map(curve_last));
}

function curve_last(curve) {
  return Math.max(curve.steps.at(-1) ?? 0, ...curve.not_finite.flat());
}

/** [{step, layout, changed, before}]: the start continued after the step; `before` is how the one before it ended. */
function starts_of(run) {
  const starts = run.report && Array.isArray(run.report.starts) ? run.report.starts : [];
  return starts.map(({step, layout}, index) => {
    const earlier = starts[index - 1];
    return {step, layout: layout_text(layout), changed: Boolean(earlier) && layout_text(earlier.layout) !== layout_text(layout), before: earlier && state_text(earlier.state)};
  });
}

function start_text({step, layout, changed}) {
  return `after step ${number_text(step)} with ${changed ? 'another layout, ' : ''}${layout}`;
}

function resumed_text(start) {
  return start_text(start) + (start.before ? ` (the start before ended: ${start.before})` : '');
}

/** The starts after which the run made further steps, except the first. */
function resumptions_of(run) {
  return starts_of(run).filter(({step}) => step > 0 && step < last_step(run));
}

function start_marks(run, axis) {
  return resumptions_of(run).map((start) => ({
    x: axis.place(run)(start.step), text: start.changed ? 'layout' : 'restart', start: page.runs.length > 1 ? series_colour(page.runs.indexOf(run)) : 'var(--muted)',
    title: `${page.runs.length > 1 ? `${run.name}: ` : ''}resumed ${resumed_text(start)}`,
  }));
}

/** The restarts of a run in words, the newest last; nothing for a run that was started once. */
function starts_text(run) {
  const shown = 10;
  const resumed = resumptions_of(run);
  const more = resumed.length > shown ? `${resumed.length - shown} earlier times, and ` : '';
  return resumed.length === 0 ? '' : `${page.runs.length > 1 ? `${run.name} was resumed ` : 'Resumed '}${more}${resumed.slice(-shown).map(resumed_text).join('; ')}.`;
}

/** Why a curve ends before the last step of all runs: its run ended there, or did not measure it any more; else "". */
function curve_end(run, key) {
  const curve = series_of(run)[key];
  const last = curve_last(curve);
  const of_run = last_step(run);
  // A curve of a validation ends up to a validation's distance before its run.
  const recent = curve.steps.slice(-10);
  const distance = Math.max(...recent.slice(1).map((step, index) => step - recent[index]));
  if (['repeated', 'skipped'].includes(key) || !Number.isFinite(distance)) {
    return '';
  }
  if (of_run - last > 1.5 * distance) {
    const start = starts_of(run).find(({step}) => step >= last);
    return `ends at step ${number_text(last)}: not measured ${start ? `since the start ${start_text(start)}` : 'any more'}`;
  }
  const longest = Math.max(...page.runs.map(last_step));
  return of_run < longest ? `ends at step ${number_text(of_run)}: ${state_text((run.report || {}).state)}` : '';
}
