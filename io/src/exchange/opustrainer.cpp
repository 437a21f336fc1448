#include <fmt/format.h>

#include <algorithm>
#include <boost/algorithm/string.hpp>
#include <boost/json.hpp>
#include <exception>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/parse_number.hpp>
#include <heddle/core/base/paths.hpp>
#include <heddle/core/base/spelling.hpp>
#include <heddle/core/config/options.hpp>
#include <heddle/io/exchange/opustrainer.hpp>
#include <iterator>
#include <map>
#include <set>
#include <vector>

#include "formats/yaml_text.hpp"

namespace heddle {

namespace {

namespace json = boost::json;

/// OpusTrainer's modifiers by their names here.
std::map<std::string, std::string> const modifiers{
    {"UpperCase", "upper_case"}, {"TitleCase", "title_case"},
    {"Typos", "typos"},          {"RemoveEndPunct", "remove_end_punctuation"},
    {"Noise", "noise"},          {"Tags", "tags"},
    {"Prefix", "prefix"},        {"Merge", "merge"}};

std::string toml_quoted(std::string const& text) {
  return to_toml(OptionValue(text));
}

/// A scalar in TOML.
std::string toml_of(json::value const& value) {
  return value.is_string()   ? toml_quoted(std::string(value.get_string()))
         : value.is_double() ? to_toml(OptionValue(value.get_double()))
                             : json::serialize(value);
}

class Conversion {
 public:
  Conversion(json::object const& theirs, std::string const& where) : theirs_(theirs), where_(where) {}

  std::string text() {
    for (auto const& [name, files] : member(theirs_, "datasets").as_object()) {
      std::vector<std::string> paths;
      json::array const all = files.is_array() ? files.get_array() : json::array{files};
      std::ranges::transform(all, std::back_inserter(paths), toml_of);
      corpora_.push_back(std::string(name));
      files_[corpora_.back()] = paths.size() == 1 ? paths.front() : fmt::format("[{}]", fmt::join(paths, ", "));
    }
    std::string const modifiers = modifiers_text(theirs_, of_all_);
    std::string stages;
    json::array const& all = member(theirs_, "stages").as_array();
    for (json::value const& stage : all) {
      stages += stage_text(std::string(stage.as_string()), &stage == &all.back());
    }
    std::string text = fmt::format("# from {}\n", where_);
    for (std::string const& corpus : corpora_) {
      if (plain_.contains(corpus) || !copied_.contains(corpus)) {
        text += fmt::format("\n[data.corpus.{}]\ntrain = {}\n", toml_quoted(corpus), files_.at(corpus));
      }
    }
    return text + stages + (modifiers.empty() ? "" : "\n[data.modifiers]\n" + modifiers) +
           fmt::format("\n[train]\nseed = {}\n", member(theirs_, "seed").as_int64());
  }

 private:
  json::value const& member(json::object const& object, std::string const& key) const {
    json::value const* const found = object.if_contains(key);
    if (found == nullptr) {
      throw DataError("{}: there is no key {}", where_, key);
    }
    return *found;
  }

  /// A stage: "clean 0.8", …, and at last "until clean 2". If it has modifiers of its own, it reads corpora of its own.
  std::string stage_text(std::string const& name, bool is_last) {
    json::value const& stage = member(theirs_, name);
    bool const modified = stage.is_object() && stage.get_object().contains("modifiers");
    std::string const own_modifiers = modified ? stage_modifiers(stage.get_object()) : "";
    std::string copies;
    json::array const& mix = stage.is_object() ? member(stage.get_object(), "mix").as_array() : stage.as_array();
    std::vector<std::string> weights;
    std::string end;
    for (json::value const& line : mix) {
      std::vector<std::string> words;
      boost::split(words, std::string_view(line.as_string()), boost::is_space(), boost::token_compress_on);
      bool const until = words.size() == 3 && words.front() == "until";
      auto const require = [&](bool good, std::string const& what) {
        if (!good) {
          throw DataError("{}: stage {}: \"{}\": {}", where_, name, std::string_view(line.as_string()), what);
        }
      };
      require(end.empty(), "stands after the stage's end, \"until NAME EPOCHS\"");
      require(until || words.size() == 2, "expected NAME WEIGHT, or \"until NAME EPOCHS\" at the end");
      std::string const& corpus = words[until ? 1 : 0];
      if (std::ranges::count(corpora_, corpus) == 0) {
        require(false, fmt::format("no dataset has the name {}; {}", corpus, nearest_or_all(corpus, corpora_)));
      }
      std::string const read = modified ? corpus + "-in-" + name : corpus;
      if (until) {
        bool const never = words[2] == "inf";
        auto const epochs = parse_number<std::int64_t>(words[2]);
        require(never || (epochs && *epochs > 0), "expected a whole number of epochs, or inf");
        require(!never || is_last, "the stages after it would never start");
        end = never ? "# until inf\n" : fmt::format("corpus = {}\nepochs = {}\n", toml_quoted(read), *epochs);
      } else {
        auto const weight = parse_number<double>(words[1]);
        require(weight && *weight >= 0, "expected a weight, a number of at least 0");
        weights.push_back(fmt::format("{} = {}", toml_quoted(read), to_toml(OptionValue(*weight))));
        (modified ? copied_ : plain_).insert(corpus);
        if (modified) {
          copies += fmt::format("\n# {0} as stage {1} modifies it\n[data.corpus.{2}]\ntrain = {3}\n", corpus, name,
                                toml_quoted(read), files_.at(corpus));
          copies += own_modifiers.empty()
                        ? ""
                        : fmt::format("[data.corpus.{}.modifiers]\n{}", toml_quoted(read), own_modifiers);
        }
      }
    }
    if (end.empty()) {
      throw DataError("{}: stage {} has no \"until NAME EPOCHS\" at its end", where_, name);
    }
    return copies + fmt::format("\n[[data.stage]]\ntitle = {}\nweights = {{ {} }}\n{}", toml_quoted(name),
                                fmt::join(weights, ", "), end);
  }

  /// A stage's modifiers, which hold in place of those of all stages.
  std::string stage_modifiers(json::object const& stage) const {
    std::set<std::string> own;
    std::string text = modifiers_text(stage, own);
    for (std::string const& name : of_all_) {
      text += own.contains(name) ? "" : name + " = 0\n";
    }
    return text;
  }

  /// The modifiers of all stages, or of one; adds their names.
  std::string modifiers_text(json::object const& object, std::set<std::string>& names) const {
    json::value const* const all = object.if_contains("modifiers");
    return all == nullptr ? "" : list_text(all->as_array(), names);
  }

  /// A list of modifiers. An element may be a list, as references to other lists are.
  std::string list_text(json::array const& list, std::set<std::string>& names) const {
    std::string text;
    for (json::value const& element : list) {
      if (element.is_array()) {
        text += list_text(element.get_array(), names);
        continue;
      }
      text += modifier_text(element.as_object(), names);
    }
    return text;
  }

  /// A modifier with its rate, and its options; adds its name.
  std::string modifier_text(json::object const& modifier, std::set<std::string>& names) const {
    auto const name = modifiers.find(std::string(modifier.begin()->key()));
    if (name == modifiers.end()) {
      throw DataError("{}: there is no modifier like {} here", where_, std::string_view(modifier.begin()->key()));
    }
    names.insert(name->second);
    if (modifier.size() == 1) {
      return fmt::format("{} = {}\n", name->second, toml_of(modifier.begin()->value()));
    }
    std::vector<std::string> options{fmt::format("rate = {}", toml_of(modifier.begin()->value()))};
    for (auto option = std::next(modifier.begin()); option != modifier.end(); ++option) {
      std::string_view const key = option->key();
      // null is their default; links of words become those of pieces here without being asked to
      if (option->value().is_null() || key.starts_with("spm_vocab_")) {
        continue;
      }
      if (key.starts_with("custom_detok_")) {
        throw DataError(
            "{}: {} of {}: here text is not tokenized by Moses or ICU; turn the corpora into plain text with links of "
            "its words, and remove the option",
            where_, key, name->first);
      }
      options.push_back(fmt::format("{} = {}", key, toml_of(option->value())));
    }
    return fmt::format("{} = {{ {} }}\n", name->second, fmt::join(options, ", "));
  }

  json::object const& theirs_;
  std::string const& where_;
  std::vector<std::string> corpora_;
  std::map<std::string, std::string> files_;  ///< of a corpus, in TOML
  std::set<std::string> plain_, copied_;      ///< corpora of stages without and with modifiers of their own
  std::set<std::string> of_all_;              ///< modifiers of all stages
};

}  // namespace

std::string config_of_opustrainer(std::filesystem::path const& path) {
  auto const [text, problem] = read_file_text(path, std::uintmax_t{1} << 20);
  if (!problem.empty()) {
    throw DataError(problem + "; expected OpusTrainer's configuration");
  }
  std::string const where = path.string();
  try {
    json::object const theirs = parse_yaml_map(text, where);
    return Conversion(theirs, where).text();
  } catch (DataError const&) {
    throw;
  } catch (std::exception const& error) {  // of Boost.JSON, which throws different ones in different versions
    throw DataError("{}: a value is not of the type that OpusTrainer takes: {}", where, error.what());
  }
}

}  // namespace heddle
