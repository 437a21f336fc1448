// The page from top to bottom.

/** The header's height follows from the lines of its entries; a section that is chosen there starts below it. */
function keep_titles_below_header() {
  const header = document.querySelector('.top');
  new ResizeObserver(() => { document.documentElement.style.scrollPaddingTop = `${header.offsetHeight + 12}px`; }).observe(header);
}

function start() {
  keep_titles_below_header();
  tell_runs_apart();
  show_facts();
  show_comparison();
  show_curves();
  show_mesh();
  show_schedule();
  show_translations();
  show_attention();
  show_search();
  show_packs();
  show_positions();
  show_embeddings();
  show_norms();
  show_datasets();
  show_configuration();
  document.getElementById('main').append(html('footer', {}, `Written by heddle ${page.version} from ${page.path}.`));
  document.documentElement.dataset.ready = 'true';
}
