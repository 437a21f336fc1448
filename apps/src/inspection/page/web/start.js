// The page from top to bottom.

/** The header's height follows from the lines of its entries; a section that is chosen there starts below it. */
function keep_titles_below_header() {
  const header = document.querySelector('.top');
  new ResizeObserver(() => { document.documentElement.style.scrollPaddingTop = `${header.offsetHeight + 12}px`; }).observe(header);
}

/** Marks the entry of the section that is read, and keeps it in view where the entries are one row that scrolls. */
function follow_sections() {
  const contents = document.getElementById('contents');
  const entries = new Map([...contents.children].map((entry) => [entry.getAttribute('href').slice(1), entry]));
  const show = () => {
    const line = document.querySelector('.top').offsetHeight + 40;
    const read = [...document.querySelectorAll('section')].filter((each) => each.getBoundingClientRect().top <= line).at(-1);
    for (const [id, entry] of entries) {
      const current = Boolean(read) && id === read.id;
      if (current && !entry.hasAttribute('aria-current')) {
        contents.scrollTo({left: entry.offsetLeft - contents.offsetLeft - (contents.clientWidth - entry.offsetWidth) / 2});
      }
      entry.toggleAttribute('aria-current', current);
    }
  };
  document.addEventListener('scroll', show, {passive: true});
  show();
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
  follow_sections();
  document.documentElement.dataset.ready = 'true';
}
