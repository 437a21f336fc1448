#include <fmt/format.h>

#include <algorithm>
#include <boost/algorithm/string/split.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/paths.hpp>
#include <heddle/core/base/random.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/cleaning/cleaner.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <heddle/io/text/text_files.hpp>
#include <heddle/io/text/text_writer.hpp>
#include <iostream>
#include <map>

#include "command_line/options.hpp"
#include "commands.hpp"
#include "corpus/corpus_output.hpp"
#include "run/directory/warning.hpp"
#include "run/processes/forked_process.hpp"

namespace heddle {
namespace {

namespace po = boost::program_options;

struct CleanOptions {
  std::vector<std::string> source, target, tsv, text;
  std::string columns;
  std::string rules;  ///< "": the default ones
  std::string out_source, out_target;
  std::string out = "-";
  std::string dropped, report;
  std::string write_rules;
  InvalidUtf8 invalid_utf8 = InvalidUtf8::replace;
  int threads = 0;
  Verbosity verbosity = Verbosity::normal;

  bool pairs() const { return text.empty(); }
};

CommandSyntax clean_syntax(CleanOptions& options) {
  auto const files = [](std::vector<std::string>& paths, char const* name) {
    return po::value(&paths)->value_name(name)->multitoken()->composing();
  };
  CommandSyntax syntax;
  syntax.name = "clean";
  syntax.usage =
      "--source TEXT... --target TEXT... --out-source FILE --out-target FILE [options]\n"
      "(--tsv FILE... | --text TEXT...) [--out FILE] [options]\n"
      "--write-rules RULES.toml";
  syntax.summary =
      R"(Copies the lines of a corpus that are worth training on: of parallel text (plain, gzip or zstd, UTF-8, one
sentence a line), of lines with columns, or of one text. The rules are those of RULES.toml, or default ones; standard
error says how many lines each of them dropped. The result does not depend on the number of threads.)";
  syntax.options.add_options()                                                                   //
      ("source", files(options.source, "TEXT..."), "text, source side, in one file or several")  //
      ("target", files(options.target, "TEXT..."), "text, target side, in as many files")        //
      ("tsv", files(options.tsv, "FILE..."), "text of both sides: lines SOURCE<TAB>TARGET")      //
      ("columns", without_default(options.columns, "S,T"),
       "the columns of source and target in lines of --tsv that have more, from 1 on; whole lines are kept")  //
      ("text", files(options.text, "TEXT..."), "one text")                                                    //
      ("rules", without_default(options.rules, "RULES.toml"), "the rules; default: those of --write-rules")   //
      ("write-rules", without_default(options.write_rules, "RULES.toml"),
       "write all rules with their options and defaults, as a file to change, and exit; -: to the standard "
       "output")                                                                                               //
      ("out-source", without_default(options.out_source, "FILE"), "the kept lines of --source")                //
      ("out-target", without_default(options.out_target, "FILE"), "the kept lines of --target")                //
      ("out", with_default(options.out, "FILE"), "the kept lines of --tsv or --text; -: the standard output")  //
      ("dropped", without_default(options.dropped, "FILE.tsv"),
       "the other lines: NUMBER, RULE, REASON, and the sides")                                                  //
      ("report", without_default(options.report, "FILE"), "the counts, with ten lines that each rule dropped")  //
      ("threads", with_default(options.threads, "N"), "threads that share the work; 0: one for each core");
  add_invalid_utf8(syntax.options, options.invalid_utf8);
  add_verbosity(syntax, options.verbosity, "print only warnings");
  return syntax;
}

void check_options(CleanOptions const& options) {
  bool const two_texts = !options.source.empty() || !options.target.empty();
  if ((two_texts ? 1 : 0) + (options.tsv.empty() ? 0 : 1) + (options.text.empty() ? 0 : 1) != 1) {
    throw UsageError("clean: expected the text: --source and --target, --tsv, or --text");
  }
  if (two_texts && options.source.size() != options.target.size()) {
    throw UsageError("clean: {} for --source and {} for --target: line n of each file translates line n of the other",
                     counted(options.source.size(), "file"), counted(options.target.size(), "file"));
  }
  if (two_texts == (options.out_source.empty() || options.out_target.empty())) {
    throw UsageError(two_texts ? "clean: expected --out-source and --out-target, the files for the kept lines"
                               : "clean: --out-source and --out-target are for --source and --target; expected --out");
  }
  if (two_texts && options.out_source == options.out_target) {
    throw UsageError("clean: --out-source and --out-target are one file, {}", options.out_source);
  }
  if (!options.columns.empty() && options.tsv.empty()) {
    throw UsageError("clean: --columns names columns of --tsv, which is not given");
  }
}

/// The lines of the text, with their sides.
class Input {
 public:
  explicit Input(CleanOptions const& options) : invalid_utf8_(options.invalid_utf8) {
    if (!options.columns.empty()) {
      columns_ = parse_columns(options.columns);
      if (auto const [source, target] = *columns_; source < 1 || target < 1 || source == target) {
        throw UsageError("clean: --columns {}: expected two different columns, counted from 1", options.columns);
      }
    }
    has_columns_ = !options.tsv.empty();
    if (has_columns_) {
      texts_ = {options.tsv};
    } else if (options.pairs()) {
      texts_ = {options.source, options.target};
    } else {
      texts_ = {options.text};
    }
    std::vector<std::filesystem::path> all;
    for (auto const& files : texts_) {
      all.insert(all.end(), files.begin(), files.end());
    }
    require_different_pipes(all);
  }

  /// False at the end. Throws DataError for a line that cannot be read, and for files with different numbers of lines.
  bool next(CleanedLine& line) {
    for (; file_ < texts_.front().size(); ++file_, readers_.clear()) {
      if (readers_.empty()) {
        for (auto const& files : texts_) {
          readers_.emplace_back(std::vector{TextFile(files[file_])}, invalid_utf8_);
        }
      }
      line.sides.resize(readers_.size());
      std::vector<bool> ended;
      for (std::size_t side = 0; side < readers_.size(); ++side) {
        ended.push_back(!readers_[side].next(line.sides[side]));
      }
      if (ended.front() != ended.back()) {
        std::size_t const shorter = ended.front() ? 0 : 1;
        throw DataError("{} ends after line {}, but {} has more: line n of one must translate line n of the other",
                        texts_[shorter][file_], readers_[shorter].line_number(), texts_[1 - shorter][file_]);
      }
      if (!ended.front()) {
        if (has_columns_) {
          take_columns(line);
        }
        return true;
      }
    }
    return false;
  }

 private:
  void take_columns(CleanedLine& line) const {
    line.text = std::move(line.sides.front());
    std::vector<std::string> fields;
    boost::split(fields, line.text, [](char letter) { return letter == '\t'; });
    auto const [source, target] = columns_.value_or(std::array<std::int64_t, 2>{1, 2});
    std::int64_t const needed = std::max(source, target);
    if (columns_ ? std::ssize(fields) < needed : std::ssize(fields) != needed) {
      throw DataError("{}: line {} has {} columns; expected {}", texts_.front()[file_], readers_.front().line_number(),
                      fields.size(),
                      columns_ ? fmt::format("at least {}", needed)
                               : "SOURCE<TAB>TARGET; --columns names the columns of lines with more");
    }
    line.sides = {fields[static_cast<std::size_t>(source - 1)], fields[static_cast<std::size_t>(target - 1)]};
  }

  InvalidUtf8 invalid_utf8_;
  bool has_columns_ = false;
  std::optional<std::array<std::int64_t, 2>> columns_;
  std::vector<std::vector<std::string>> texts_;  ///< the files of each text
  std::size_t file_ = 0;
  std::vector<TextFilesReader> readers_;
};

/// Some of the lines that each rule dropped, the same ones in each run.
class Samples {
 public:
  void add(std::int64_t number, CleanedLine const& line) {
    constexpr std::size_t max_samples = 10;
    auto& samples = by_rule_[line.dropped->rule];
    samples.emplace(mix_bits(static_cast<std::uint64_t>(number)), describe(number, line));
    if (samples.size() > max_samples) {
      samples.erase(std::prev(samples.end()));
    }
  }

  std::string describe(CleaningReport const& report) const {
    std::string text;
    for (auto const& [rule, samples] : by_rule_) {
      text += fmt::format("\n[{}]\n", report.rules[rule].name);
      for (auto const& [order, sample] : samples) {
        text += sample;
      }
    }
    return text;
  }

 private:
  static std::string describe(std::int64_t number, CleanedLine const& line) {
    return fmt::format("line {}: {}\n    {}\n", number, line.dropped->reason, fmt::join(line.sides, "\n    "));
  }

  std::map<std::size_t, std::multimap<std::uint64_t, std::string>> by_rule_;
};

/// Where the lines go.
class Output {
 public:
  explicit Output(CleanOptions const& options) {
    bool const two_texts = !options.source.empty();
    if (two_texts) {
      kept_.emplace_back(options.out_source);
      kept_.emplace_back(options.out_target);
    } else {
      kept_.emplace_back(options.out);
    }
    if (!options.dropped.empty()) {
      dropped_.emplace(options.dropped);
    }
  }

  void add(std::int64_t number, CleanedLine const& line, CleaningReport const& report) {
    if (!line.dropped) {
      for (std::size_t file = 0; file < kept_.size(); ++file) {
        kept_[file].add(line.text.empty() ? line.sides[file] : line.text);
      }
    } else if (dropped_) {
      dropped_->add(dropped_text(number, line, report));
    }
  }
  void commit() {
    std::ranges::for_each(kept_, &TextWriter::commit);
    if (dropped_) {
      dropped_->commit();
    }
  }

 private:
  std::vector<TextWriter> kept_;
  std::optional<TextWriter> dropped_;
};

/// Throws UsageError for an output that is also read, or written twice.
void check_outputs(CleanOptions const& options) {
  std::vector<std::string> inputs{options.rules};
  for (auto const& files : {options.source, options.target, options.tsv, options.text}) {
    inputs.insert(inputs.end(), files.begin(), files.end());
  }
  std::vector<std::string> outputs;
  for (std::string const& output :
       {options.out_source, options.out_target, options.out, options.dropped, options.report}) {
    if (output.empty() || (output == "-" && !options.source.empty())) {
      continue;
    }
    require_other_file(output, inputs);
    if (std::ranges::find(outputs, output) != outputs.end()) {
      throw UsageError("clean: two outputs are {}; expected a file for each", output);
    }
    outputs.push_back(output);
  }
}

Cleaner make_cleaner(CleanOptions const& options) {
  if (options.rules.empty()) {
    return {default_rules(options.pairs()), "the default rules", options.pairs()};
  }
  auto const [text, problem] = read_file_text(options.rules);
  if (!problem.empty()) {
    throw ConfigError("--rules {}; `heddle clean --write-rules {}` writes one", problem, options.rules);
  }
  return {text, options.rules, options.pairs()};
}

ExitCode write_rules(std::string const& path) {
  if (path == "-") {
    std::cout << default_rules(true);
    return ExitCode::done;
  }
  if (std::error_code unknown; std::filesystem::exists(path, unknown)) {
    throw UsageError("--write-rules {}: there is a file, which is not replaced; expected another name", path);
  }
  replace_file(path, default_rules(true));
  std::cout << fmt::format("wrote {}\n", path);
  return ExitCode::done;
}

}  // namespace

ExitCode run_clean(Arguments const& arguments) {
  CleanOptions options;
  parse_options(clean_syntax(options), arguments);
  if (!options.write_rules.empty()) {
    return write_rules(options.write_rules);
  }
  check_options(options);
  check_outputs(options);
  Cleaner cleaner = make_cleaner(options);
  Input input(options);
  Output output(options);
  Samples samples;
  std::int64_t number = 0;
  clean_text(
      cleaner, processes_for(options.threads), [&](CleanedLine& line) { return input.next(line); },
      [&](CleanedLine const& line) {
        ++number;
        output.add(number, line, cleaner.report());
        if (line.dropped && !options.report.empty()) {
          samples.add(number, line);
        }
      });
  cleaner.finish();
  output.commit();
  std::string const table = describe(cleaner.report());
  if (!options.report.empty()) {
    replace_file(options.report, table + samples.describe(cleaner.report()));
  }
  if (options.verbosity != Verbosity::quiet) {
    std::cerr << table;
  }
  if (!options.rules.empty()) {
    std::ranges::for_each(cleaner.report().warnings, warn);
  }
  return ExitCode::done;
}

}  // namespace heddle
