#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <boost/algorithm/string/predicate.hpp>
#include <boost/algorithm/string/replace.hpp>
#include <boost/algorithm/string/split.hpp>
#include <boost/lexical_cast.hpp>
#include <cmath>
#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/config/config.hpp>
#include <heddle/dist/mpi/mpi.hpp>
#include <heddle/io/dataset/dataset.hpp>
#include <heddle/io/files/pending_directory.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <iostream>
#include <optional>
#include <thread>

#include "command_line/options.hpp"
#include "commands/commands.hpp"
#include "embedded_files.hpp"
#include "run/report/run_text.hpp"

namespace heddle {
namespace {

namespace fs = std::filesystem;
namespace po = boost::program_options;

constexpr char const* sizes = "tiny|base|big";
constexpr char const* precisions = "auto|float32|bfloat16";
constexpr char const* places = "here|slurm|pbs|lsf";
constexpr char const* systems = "any|transformers|marian";

/// The questions of `init` with their default answers; the options have the same names.
struct RunAnswers {
  std::string data = "data";
  std::string size = "tiny";
  std::int64_t nodes = 1;
  std::int64_t ranks_per_node = std::max(1U, std::thread::hardware_concurrency());
  std::string precision = "auto";
  std::string where = "here";
  std::string exported = "any";  ///< what the model is to be exported to
};

/// The site's part of a job script; empty: the site's default.
struct SiteAnswers {
  std::string account;
  std::string partition;
  std::string time = "12:00:00";
  std::int64_t notice = 120;  ///< seconds before the limit at which ranks write a checkpoint
  std::vector<std::string> modules;
  std::vector<std::string> directives;  ///< more options of sbatch, qsub or bsub
  std::string mpi = slurm_mpi_type();
};

/// A model and the training that suits it; `steps` is for text of the size that such a model needs.
struct ModelSize {
  std::string_view name;
  char const* model;
  char const* train;
  char const* optimizer;
};

constexpr ModelSize model_sizes[] = {
    {"tiny",
     "encoder_layers = 3\ndecoder_layers = 3\nd_model = 128\nd_ff = 512\nheads = 4\nnorm = \"pre\"\n"
     "tie_embeddings = true\ndropout = 0.2\nmax_length = 256\n",
     "steps = 4000\nbatch_tokens = 4096\nmicro_batch_tokens = 4096\nlabel_smoothing = 0.1\nvalidate_every = 500\n",
     "learning_rate = 0.003\nschedule = \"inverse_sqrt\"\nwarmup_steps = 400\nclip_norm = 1.0\n"},
    {"base",  // apps/examples/models/vaswani-base.toml
     "encoder_layers = 6\ndecoder_layers = 6\nd_model = 512\nd_ff = 2048\nheads = 8\nnorm = \"pre\"\n"
     "tie_embeddings = true\ndropout = 0.1\nmax_length = 512\n",
     "steps = 100000\nbatch_tokens = 25000\nmicro_batch_tokens = 8192\nlabel_smoothing = 0.1\nvalidate_every = 2000\n",
     "learning_rate = 0.0007\nschedule = \"inverse_sqrt\"\nwarmup_steps = 4000\nbeta2 = 0.98\nclip_norm = 1.0\n"},
    {"big",  // apps/examples/models/vaswani-big.toml
     "encoder_layers = 6\ndecoder_layers = 6\nd_model = 1024\nd_ff = 4096\nheads = 16\nnorm = \"pre\"\n"
     "tie_embeddings = true\ndropout = 0.3\nmax_length = 512\n",
     "steps = 300000\nbatch_tokens = 25000\nmicro_batch_tokens = 4096\nlabel_smoothing = 0.1\nvalidate_every = 5000\n",
     "learning_rate = 0.0005\nschedule = \"inverse_sqrt\"\nwarmup_steps = 4000\nbeta2 = 0.98\nclip_norm = 1.0\n"}};

/// Whether an answer is one of the choices, "one|two".
bool is_one_of(std::string_view choices, std::string const& answer) {
  std::vector<std::string> words;
  boost::split(words, choices, [](char letter) { return letter == '|'; });
  return std::ranges::find(words, answer) != words.end();
}

/// The answer on standard input to a question; the default if the line is empty. After an answer that is not possible
/// it asks again. Throws UsageError where the input ends.
template <class Value, class Possible>
void ask(Value& value, std::string const& question, Possible const& possible) {
  while (true) {
    std::cout << fmt::format("{} [{}]: ", question, value) << std::flush;
    std::string line;
    if (!std::getline(std::cin, line)) {
      std::cout << '\n';
      throw UsageError("the input ended at the question: {}", question);
    }
    Value answer = value;
    if (line.empty() || (boost::conversion::try_lexical_convert(line, answer) && possible(answer))) {
      value = answer;
      return;
    }
    std::cout << fmt::format("\"{}\" is not a possible answer.\n", line);
  }
}

/// Asks for what no option gives.
void ask_for_the_rest(RunAnswers& answers, boost::program_options::variables_map const& given) {
  auto const ask_for = [&](char const* option, auto& value, char const* question, auto const& possible) {
    if (given[option].defaulted()) {
      ask(value, question, possible);
    }
  };
  auto const among = [](char const* choices) {
    return [choices](std::string const& answer) { return is_one_of(choices, answer); };
  };
  auto const at_least_one = [](std::int64_t answer) { return answer >= 1; };
  ask_for("data", answers.data, "Where are train.h5 and valid.h5 of `heddle prepare`?",
          [](std::string const& /*directory*/) { return true; });
  ask_for("size", answers.size, "Which model: tiny, base or big?", among(sizes));
  ask_for("precision", answers.precision, "Which precision: auto, float32 or bfloat16?", among(precisions));
  ask_for("where", answers.where, "Where does it run: here, slurm, pbs or lsf?", among(places));
  ask_for("nodes", answers.nodes, "On how many machines?", at_least_one);
  ask_for("ranks-per-node", answers.ranks_per_node, "With how many ranks on each, one a core?", at_least_one);
}

/// The keys of a model, which is pre-norm unless another system's models are not: MarianMTModel, and Marian's.
std::string model_keys(ModelSize const& size, std::string const& system) {
  std::string keys = size.model;
  if (system == "transformers") {
    boost::replace_first(keys, "norm = \"pre\"\n", "# As a MarianMTModel has it.\nnorm = \"post\"\n");
  } else if (system == "marian") {
    boost::replace_first(keys, "norm = \"pre\"\n",
                         "# The next three keys are Marian's, for heddle export --format marian.\n"
                         "norm = \"post\"\nposition_frequencies = \"tensor2tensor\"\nnorm_epsilon = 1e-6\n");
  }
  return keys;
}

/// Post-norm needs a longer warm-up.
std::string optimizer_keys(ModelSize const& size, bool post_norm) {
  std::string keys = size.optimizer;
  if (post_norm) {
    boost::replace_first(keys, "warmup_steps = 400\n", "warmup_steps = 1000\n");
  }
  return keys;
}

/// The name of the run's directory: that of the data's, so that two language pairs have runs of their own, or else the
/// model's size.
std::string run_name(RunAnswers const& answers) {
  fs::path const data = fs::path(answers.data).lexically_normal();
  std::string const name = (data.has_filename() ? data : data.parent_path()).filename().string();
  return name.empty() || name.front() == '.' || name == RunAnswers().data ? answers.size : name;
}

std::string configuration(RunAnswers const& answers) {
  ModelSize const& size = *std::ranges::find(model_sizes, answers.size, &ModelSize::name);
  bool const post_norm = answers.exported != "any";
  auto const dataset = [&](char const* name) {
    return to_toml(OptionValue((fs::path(answers.data) / name).lexically_normal().string()));
  };
  return fmt::format(
      R"(# A run of a {} model, by `heddle init`. Every key: `heddle config --defaults` and docs/reference/config.md.
[run]
directory = {}

[data]
train = {}
valid = {}

[model]
{}
[train]
{}precision = "{}"

[optimizer]
{}
[checkpoint]
every_steps = 500
)",
      size.name, to_toml(OptionValue("runs/" + run_name(answers))), dataset("train.h5"), dataset("valid.h5"),
      model_keys(size, answers.exported), size.train, answers.precision, optimizer_keys(size, post_norm));
}

struct JobScript {
  fs::path path;
  std::string text;
  std::string submit;  ///< the command that submits it
};

/// Replaces a part of a template, which must have it.
void set_line(std::string& text, std::string const& in_template, std::string const& with) {
  if (!boost::contains(text, in_template)) {
    throw Error("the job script has no \"{}\"", in_template);
  }
  boost::replace_first(text, in_template, with);
}

/// Adds the directives of account and partition after the job's name, and the modules before the first setting.
void add_site(std::string& text, SiteAnswers const& site, std::string const& name_line, std::string_view account,
              std::string_view partition) {
  std::string const directive = name_line.substr(0, name_line.find(' '));
  std::string lines = name_line;
  lines += site.account.empty() ? "" : fmt::format("{} {}{}\n", directive, account, site.account);
  lines += site.partition.empty() ? "" : fmt::format("{} {}{}\n", directive, partition, site.partition);
  for (std::string const& option : site.directives) {
    lines += fmt::format("{} {}\n", directive, option);
  }
  set_line(text, name_line, lines);
  if (!site.modules.empty()) {
    set_line(text, "\nconfig=run.toml\n",
             fmt::format("\nmodule load {}\n\nconfig=run.toml\n", fmt::join(site.modules, " ")));
  }
}

/// The job script for this place, with its number of nodes and ranks in the template; none for a run without one.
std::optional<JobScript> job_script(RunAnswers const& answers, SiteAnswers const& site, fs::path const& out) {
  auto const path_of = [&](char const* name) { return (out / name).lexically_normal(); };
  std::string const config = path_of("run.toml").string();
  std::int64_t const ranks = answers.ranks_per_node;
  if (answers.where == "slurm") {
    JobScript job{path_of("train.sbatch"), std::string(slurm_job_script()), ""};
    set_line(job.text, "--nodes=4", fmt::format("--nodes={}", answers.nodes));
    set_line(job.text, "--ntasks-per-node=8", fmt::format("--ntasks-per-node={}", ranks));
    set_line(job.text, "--time=12:00:00", "--time=" + site.time);
    set_line(job.text, "--signal=B:USR1@120", fmt::format("--signal=B:USR1@{}", site.notice));
    set_line(job.text, "--mpi=pmix", "--mpi=" + site.mpi);
    add_site(job.text, site, "#SBATCH --job-name=heddle\n", "--account=", "--partition=");
    job.submit = fmt::format("sbatch {} {}", quoted_for_shell(job.path.string()), quoted_for_shell(config));
    return job;
  }
  if (answers.where == "pbs") {
    JobScript job{path_of("train.pbs"), std::string(pbs_job_script()), ""};
    set_line(job.text, "select=4:ncpus=8:mpiprocs=8",
             fmt::format("select={}:ncpus={}:mpiprocs={}", answers.nodes, ranks, ranks));
    set_line(job.text, "script=train.pbs", fmt::format("script='{}'", job.path.string()));
    set_line(job.text, "walltime=12:00:00", "walltime=" + site.time);
    set_line(job.text, "notice=120", fmt::format("notice={}", site.notice));
    add_site(job.text, site, "#PBS -N heddle\n", "-A ", "-q ");
    job.submit =
        fmt::format("qsub -v HEDDLE_ARGUMENTS={} {}", quoted_for_shell(config), quoted_for_shell(job.path.string()));
    return job;
  }
  if (answers.where == "lsf") {
    JobScript job{path_of("train.lsf"), std::string(lsf_job_script()), ""};
    constexpr std::int64_t minute = 60;
    set_line(job.text, "-n 32", fmt::format("-n {}", answers.nodes * ranks));
    set_line(job.text, "ptile=8", fmt::format("ptile={}", ranks));
    set_line(job.text, "-W 12:00", "-W " + site.time.substr(0, site.time.rfind(':')));
    set_line(job.text, "-wt 3", fmt::format("-wt {}", site.notice / minute + 1));
    add_site(job.text, site, "#BSUB -J heddle\n", "-P ", "-q ");
    job.submit =
        fmt::format("HEDDLE_ARGUMENTS={} bsub < {}", quoted_for_shell(config), quoted_for_shell(job.path.string()));
    return job;
  }
  return std::nullopt;
}

void require_absent(fs::path const& path) {
  if (fs::exists(path)) {
    throw UsageError("{} exists: move it away, or choose another --out", path.string());
  }
}

/// A word of a directive or a command in a job script: it must not begin another one.
void require_word(std::string const& option, std::string const& word) {
  auto const possible = [](char letter) {
    return std::isalnum(static_cast<unsigned char>(letter)) != 0 ||
           std::string_view("_-+./:@%=,").find(letter) != std::string_view::npos;
  };
  if (!std::ranges::all_of(word, possible) || word.starts_with('-')) {
    throw UsageError("--{} \"{}\": it is written into a job script, where it must be one word", option, word);
  }
}

void require_possible(SiteAnswers const& site) {
  require_word("account", site.account);
  require_word("partition", site.partition);
  require_word("mpi", site.mpi);
  for (std::string const& module : site.modules) {
    require_word("module", module);
  }
  for (std::string const& option : site.directives) {
    if (!option.starts_with('-') || option.find('\n') != std::string::npos) {
      throw UsageError("--directive \"{}\": expected an option of sbatch, qsub or bsub, such as --qos=long", option);
    }
  }
  int hours = 0;
  int minutes = 0;
  int seconds = 0;
  int end = 0;
  if (std::sscanf(site.time.c_str(), "%4d:%2d:%2d%n", &hours, &minutes, &seconds, &end) != 3 ||
      static_cast<std::size_t>(end) != site.time.size()) {
    throw UsageError("--time \"{}\": a time is written HOURS:MINUTES:SECONDS, such as 12:00:00", site.time);
  }
  constexpr int minute = 60;
  std::int64_t const limit = (hours * minute + minutes) * minute + seconds;
  if (site.notice < 1 || site.notice >= limit) {
    throw UsageError(
        "--notice {}: the ranks write a checkpoint that many seconds before --time {}, so it must be at "
        "least 1 and less than that",
        site.notice, site.time);
  }
}

/// For options; parse_options has checked those with choices, and questions are asked again.
void require_possible(RunAnswers const& answers, std::string const& out) {
  if ((answers.where == "pbs" || answers.where == "lsf") && out.find_first_of(" \t'\"") != std::string::npos) {
    throw UsageError(
        "--out {}: the job scripts of PBS and LSF split their arguments at spaces; choose a "
        "directory without spaces and quotes in its name",
        out);
  }
  if (answers.nodes < 1 || answers.ranks_per_node < 1) {
    throw UsageError("--nodes and --ranks-per-node must be at least 1");
  }
}

/// A remark where the data are so few that the run would see them a great many times; "" elsewhere, and where they
/// cannot be read yet.
std::string few_data(std::string const& size, Config const& config) try {
  constexpr double many_epochs = 300;
  constexpr double usual_epochs = 50;
  fs::path const path = config.data.train.front();
  if (!fs::exists(path)) {
    return "";
  }
  Dataset const data = Dataset::open(path);
  double tokens = 0;
  for (auto const& [length, samples] : data.lengths(data.has_lines() ? SampleLength::line : SampleLength::longer)) {
    tokens += static_cast<double>((length + 1) * samples);
  }
  double const epochs = static_cast<double>(config.train.steps * config.train.batch_tokens) / tokens;
  if (epochs < many_epochs) {
    return "";
  }
  auto const steps = static_cast<std::int64_t>(usual_epochs / epochs * static_cast<double>(config.train.steps)) + 1;
  return fmt::format(
      "note: {} has {} {}: train.steps = {} are about {} epochs, in which a model learns its data by heart; {} epochs "
      "are "
      "{} steps{}\n",
      path.string(), readable_count(data.size()), data.kind(), readable_count(config.train.steps),
      readable_count(std::llround(epochs)), usual_epochs, readable_count(steps),
      size == "tiny" ? "" : ", and --size tiny is for some 10,000 sentences");
} catch (DataError const& error) {
  return fmt::format("note: {}\n", error.what());
}

/// The commands that come next.
std::string next_commands(RunAnswers const& answers, fs::path const& out, std::optional<JobScript> const& job) {
  std::string const config = quoted_for_shell((out / "run.toml").lexically_normal().string());
  std::string text;
  if (!fs::exists(fs::path(answers.data) / "train.h5")) {
    text += fmt::format(
        "  heddle prepare --source TRAIN.src --target TRAIN.trg --valid-source VALID.src --valid-target VALID.trg "
        "--out {}\n",
        quoted_for_shell(answers.data));
  }
  text += fmt::format("  heddle plan {} --nodes {} --ranks-per-node {}    # memory and time\n", config, answers.nodes,
                      answers.ranks_per_node);
  if (job) {
    return text + fmt::format("  {}\n", job->submit);
  }
  return text + fmt::format("  mpirun -np {} heddle train {}\n", answers.nodes * answers.ranks_per_node, config);
}

}  // namespace

ExitCode run_init(Arguments const& arguments) {
  RunAnswers answers;
  SiteAnswers site;
  std::string out = ".";
  CommandSyntax syntax;
  syntax.name = "init";
  syntax.usage = "[options]";
  syntax.summary = R"(Writes run.toml, and with --where slurm, pbs or lsf a job script, for a translation model. On a
terminal it asks for what no option gives.)";
  syntax.options.add_options()                                                                          //
      ("data", with_default(answers.data, "DIRECTORY"), "where train.h5 and valid.h5 are, or will be")  //
      ("size", with_default(answers.size, sizes),
       "tiny (some 10,000 sentences), base (millions), big (tens of millions)")                        //
      ("nodes", with_default(answers.nodes, "N"), "machines")                                          //
      ("ranks-per-node", with_default(answers.ranks_per_node, "N"), "ranks on each, a core for each")  //
      ("precision", with_default(answers.precision, precisions),
       "auto: bfloat16 where the processors that train have instructions for it")                         //
      ("where", with_default(answers.where, places), "where it runs")                                     //
      ("account", po::value(&site.account)->value_name("NAME"), "of a job: who pays for it")              //
      ("partition", po::value(&site.partition)->value_name("NAME"), "of a job: the partition, or queue")  //
      ("time", with_default(site.time, "H:M:S"), "of a job: its limit, after which it is queued again")   //
      ("notice", with_default(site.notice, "SECONDS"),
       "of a job: before the limit, enough for a step and a checkpoint")                                      //
      ("module", po::value(&site.modules)->value_name("NAME"), "a module that the job loads; several times")  //
      ("directive", po::value(&site.directives)->value_name("OPTION"),
       "another option of the job, --directive=--qos=long; several times")                              //
      ("mpi", with_default(site.mpi, "TYPE"), "of Slurm: srun --mpi=TYPE; srun --mpi=list names them")  //
      ("export", with_default(answers.exported, systems),
       "transformers: a model that is a MarianMTModel of Hugging Face's transformers; marian: one that Marian computes "
       "just as Heddle does")  //
      ("out", with_default(out, "DIRECTORY"), "where the files are written");
  auto const values = parse_options(syntax, arguments);
  fs::path const run = (fs::path(out) / "run.toml").lexically_normal();
  require_absent(run);
  if (::isatty(STDIN_FILENO) != 0) {
    ask_for_the_rest(answers, values);
  }
  require_possible(answers, out);
  for (char const* const option : {"account", "partition", "time", "notice", "module", "directive", "mpi"}) {
    bool const has_place = answers.where == "slurm" || (answers.where != "here" && std::string_view(option) != "mpi");
    if (!has_place && values.count(option) > 0 && !values[option].defaulted()) {
      throw UsageError("--{} is written into a job script, and --where {} has no place for it", option, answers.where);
    }
  }
  require_possible(site);
  std::string const config = configuration(answers);
  std::string const remark = few_data(answers.size, parse_config(config, "run.toml"));
  auto const job = job_script(answers, site, out);
  if (job) {
    require_absent(job->path);
  }
  PendingDirectory directory(out, PendingDirectory::Target::any);
  replace_file(directory.path() / run.filename(), config);
  if (job) {
    replace_file(directory.path() / job->path.filename(), job->text);
  }
  directory.commit();
  std::cout << fmt::format("wrote {}{}\n", run.string(), job ? " and " + job->path.string() : std::string()) << remark
            << "next:\n"
            << next_commands(answers, out, job);
  return ExitCode::done;
}

}  // namespace heddle
