#include "serving/workers/served_models.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <heddle/core/base/error.hpp>

#include "inference/translation.hpp"
#include "run/directory/warning.hpp"

namespace heddle {
namespace {

namespace json = boost::json;

/// The languages that a request names for a side; none where it names none.
json::array languages_of(Tokenizer const& tokenizer, bool named) {
  json::array names;
  if (named) {
    for (std::int32_t const id : tokenizer.form().languages) {
      names.emplace_back(tokenizer.piece(id));
    }
  }
  return names;
}

/// "m30k" for runs/m30k, for its directory checkpoints and for a checkpoint in there.
std::string run_name(std::string const& checkpoint) {
  std::error_code problem;
  std::filesystem::path path = std::filesystem::weakly_canonical(checkpoint, problem);
  if (!path.has_filename()) {  // a slash at the end
    path = path.parent_path();
  }
  std::filesystem::path const in_checkpoints = path.filename() == "checkpoints" ? path : path.parent_path();
  return (in_checkpoints.filename() == "checkpoints" ? in_checkpoints.parent_path() : path).filename().string();
}

json::object describe_model(std::string const& name, std::string const& run, TrainedModel& model,
                            GenerationOptions const& choices) {
  Vocabulary const& vocabulary = model.vocabulary();
  LanguagePosition const source = vocabulary.source.form().source.language;
  bool const of_target = source == LanguagePosition::of_target;
  bool const target = of_target || vocabulary.target.form().target.language != LanguagePosition::none;
  return {{"name", name},
          {"run", run},
          {"adapters", json::value_from(model.adapters())},
          {"source_languages", languages_of(vocabulary.source, source != LanguagePosition::none && !of_target)},
          {"target_languages", languages_of(of_target ? vocabulary.source : vocabulary.target, target)},
          {"max_source_tokens", model.longest_source()},
          {"digest", generation_digest(model, choices)}};
}

void translate_synthetic_tokens(TrainedModel& model, GenerationOptions options) {
  auto const token = static_cast<std::int32_t>(std::min(model.vocabulary().source.size() - 1, 10));
  options.beam_size = 2;
  options.max_length = 2;
  for (std::size_t const count : {1, 16}) {  // few rows and many: kernels may pack weights for each
    auto const generation = model.generation(options);
    for (std::size_t number = 0; number < count; ++number) {
      generation->add(static_cast<std::int64_t>(number), {token, token});
    }
    while (!generation->empty()) {
      generation->step();
    }
  }
}

}  // namespace

ServedModels::ServedModels(ServedModelOptions const& options) {
  auto const require = [](ModelDescription const& description) {
    require_translation(description, "heddle serve", commands_for(description));
  };
  TrainedModelOptions next = options.first;
  auto const open = [&](std::string const& name) {
    TrainedModelOptions own = next;
    ForcedDecoding forcing({}, own);
    models_.push_back({name, run_name(own.checkpoint), std::move(forcing), TrainedModel::open(own, require)});
    std::ranges::for_each(models_.back().model->skipped(), report_on_stderr);
    next.execution = &models_.front().model->execution();
  };
  if (!next.checkpoint.empty()) {
    open(first_name);
    apply(options.choices, models_.front().model->vocabulary(), models_.front().choices);
  }
  next.ensemble.clear();
  next.weights.clear();
  next.adapters.clear();
  next.adapter.clear();
  for (auto const& [name, directory] : options.others) {
    next.checkpoint = directory;
    open(name);
  }
}

ServedModels::~ServedModels() {
  while (!models_.empty()) {
    models_.pop_back();  // the first one last: it owns the Runtime
  }
}

ServedModel ServedModels::find(std::string const& model, std::string const& adapter) const {
  auto const found = model.empty() ? models_.begin() : std::ranges::find(models_, model, &Named::name);
  if (found == models_.end()) {
    std::vector<std::string> names;
    std::ranges::transform(models_, std::back_inserter(names), &Named::name);
    throw UsageError("there is no model \"{}\"; expected one of: {}", model, fmt::join(names, ", "));
  }
  return {&found->model->with_adapter(adapter), &found->choices, &found->forcing};
}

std::string ServedModels::describe() const {
  json::array models;
  for (auto const& [name, run, forcing, model, choices] : models_) {
    models.push_back(describe_model(name, run, *model, choices));
  }
  return json::serialize(json::object{{"models", std::move(models)}}) + "\n";
}

void ServedModels::warm_up() const {
  for (auto const& [name, run, forcing, model, choices] : models_) {
    translate_synthetic_tokens(*model, choices);
    for (std::string const& adapter : model->adapters()) {
      translate_synthetic_tokens(model->with_adapter(adapter), choices);
    }
  }
}

}  // namespace heddle
