// The page from top to bottom.
function start() {
  start_theme();
  show_facts();
  show_comparison();
  show_curves();
  show_mesh();
  show_schedule();
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
