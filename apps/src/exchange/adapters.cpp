#include "adapters.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/layers/low_rank.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <heddle/io/files/pending_directory.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <heddle/io/formats/safetensors.hpp>
#include <heddle/io/tensors/manifest.hpp>
#include <heddle/io/text/bounded_json.hpp>
#include <map>
#include <optional>
#include <set>

#include "exchange/exporting.hpp"
#include "run/checkpoints/checkpoint.hpp"
#include "run/checkpoints/new_run.hpp"

namespace heddle {

namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr char const* config_name = "adapter_config.json";
constexpr char const* tensors_name = "adapter_model.safetensors";
/// PEFT's name of a module is this prefix followed by the base model's name.
constexpr std::string_view peft_prefix = "base_model.model.";
/// PEFT's suffixes for the tensors that adapter_suffixes name.
constexpr std::array<std::string_view, 2> peft_suffixes{".lora_A.weight", ".lora_B.weight"};
constexpr std::string_view weight_suffix = ".weight";

/// The name without its end; nothing where it has another one.
std::optional<std::string> without(std::string_view name, std::string_view end) {
  return name.ends_with(end) ? std::optional(std::string(name.substr(0, name.size() - end.size()))) : std::nullopt;
}

class MergedTensors final : public OneRankTensors {
 public:
  MergedTensors(Checkpoint const& from, AdapterConfig const& adapter)
      : from_(from), scale_(adapter.alpha / static_cast<double>(adapter.rank)) {
    for (TensorInfo const& tensor : from.tensors()) {
      if (!is_of_adapter(tensor.name)) {
        tensors_.push_back({tensor.name, tensor.shape});
      }
    }
  }

  void receive(TensorChunk const& chunk, std::span<float> elements) override {
    StreamedTensor const& tensor = tensors_.at(chunk.tensor);
    read_elements(from_, tensor.name, chunk.elements, elements);
    auto const projection = without(tensor.name, weight_suffix);
    if (projection && from_.contains(*projection + adapter_suffixes[0])) {
      add(*projection, tensor.shape.at(1), chunk.elements, elements);
    }
  }

 private:
  /// Adds the elements of alpha / rank · B A, row by row.
  void add(std::string const& projection, std::int64_t columns, IndexRange const& range, std::span<float> elements) {
    if (projection != projection_) {
      a_ = from_.read(projection + adapter_suffixes[0]);
      b_ = from_.read(projection + adapter_suffixes[1]);
      projection_ = projection;
    }
    auto const rank = std::ssize(a_) / columns;
    std::vector<double> sums(static_cast<std::size_t>(columns));
    for (std::int64_t begin = range.begin; begin < range.end;) {
      std::int64_t const row = begin / columns;
      std::ranges::fill(sums, 0);
      for (std::int64_t r = 0; r < rank; ++r) {
        double const factor = scale_ * static_cast<double>(b_[static_cast<std::size_t>(row * rank + r)]);
        float const* const of_a = a_.data() + r * columns;
        for (std::int64_t column = 0; column < columns; ++column) {
          sums[static_cast<std::size_t>(column)] += factor * static_cast<double>(of_a[column]);
        }
      }
      std::int64_t const end = std::min((row + 1) * columns, range.end);
      for (; begin < end; ++begin) {
        float& element = elements[static_cast<std::size_t>(begin - range.begin)];
        element = static_cast<float>(static_cast<double>(element) + sums[static_cast<std::size_t>(begin % columns)]);
      }
    }
  }

  Checkpoint const& from_;
  double scale_;
  std::string projection_;
  std::vector<float> a_, b_;  ///< of projection_
};

/// PEFT's name of a projection's module. Throws ConfigError where the base model's weight is not the whole parameter.
std::string module_of(ExchangedModel const& model, std::string const& projection) {
  auto const& [name, change, older, twice] =
      origin_of(model.family, model.ours, projection + std::string(weight_suffix));
  auto const module = without(name, weight_suffix);
  if (!module || change.transposed || change.parts > 1 || change.scale != nullptr || change.added != 0 ||
      change.skipped_rows > 0 || change.added_rows > 0) {
    throw ConfigError(
        "{}: the family {} has this weight in another form, {}: its adapter cannot be "
        "exchanged; --merge folds adapters into the weights",
        projection, model.family.model_type, name);
  }
  return *module;
}

json::value number(double value) {
  bool const whole = std::trunc(value) == value && std::abs(value) < 1e15;
  return whole ? json::value(static_cast<std::int64_t>(value)) : json::value(value);
}

/// The name by which PEFT may find the base: where the model was published, as config.json says in many versions of
/// transformers, else that of the directory that was imported; null if there is none.
json::value name_of_base(CheckpointContents const& contents) {
  json::object const config = json_object_in(contents.origin, "config.json");
  json::object const record = json_object_in(contents.origin, import_record);
  json::value const* const published = find_key(config, "_name_or_path");
  bool const usable = published != nullptr && published->is_string() && !published->get_string().empty() &&
                      published->get_string().find_first_of("/.") != 0;
  json::value const* const name = usable ? published : find_key(record, "directory");
  return name == nullptr ? json::value(nullptr) : *name;
}

json::object peft_config(AdapterConfig const& adapter, ModelConfig const& model, json::value const& base,
                         std::vector<std::string> const& modules) {
  return {{"peft_type", "LORA"},
          {"task_type", model.is_encoder_decoder() ? "SEQ_2_SEQ_LM" : "CAUSAL_LM"},
          {"base_model_name_or_path", base},
          {"r", adapter.rank},
          {"lora_alpha", number(adapter.alpha)},
          {"lora_dropout", adapter.dropout},
          {"target_modules", json::value_from(modules)},
          {"bias", "none"},
          {"fan_in_fan_out", false},
          {"inference_mode", true},
          {"init_lora_weights", true},
          {"modules_to_save", nullptr}};
}

json::object read_peft_config(fs::path const& directory) {
  fs::path const path = directory / config_name;
  return json_object_of(read_regular(path, max_origin_bytes).value_or(""), path.string());
}

SafetensorsFiles open_adapter(fs::path const& directory) {
  if (fs::path const pickle = directory / "adapter_model.bin";
      fs::exists(pickle) && !fs::exists(directory / tensors_name)) {
    throw DataError(
        "{}: is a pickle, which can run any code and is not read; convert the adapter with pip's peft: "
        "`PeftModel.from_pretrained(model, DIR)` and `save_pretrained(OUT, safe_serialization=True)`",
        pickle.string());
  }
  return SafetensorsFiles::open(directory / tensors_name);
}

bool is_unset(json::value const& value) {
  return value.is_null() || (value.is_bool() && !value.get_bool()) ||
         (value.is_object() && value.get_object().empty()) || (value.is_array() && value.get_array().empty());
}

/// Keys that may have any value: what they say is in the tensors, or is about training or the base.
constexpr std::array<std::string_view, 19> free_keys{
    "auto_mapping",   "base_model_name_or_path", "corda_config",        "eva_config",        "exclude_modules",
    "inference_mode", "layers_pattern",          "layers_to_transform", "lora_alpha",        "lora_dropout",
    "lora_ga_config", "megatron_core",           "peft_version",        "qalora_group_size", "r",
    "revision",       "runtime_config",          "target_modules",      "task_type"};
/// Keys with the only values that a plain adapter has, or the usual ones; all others must be null, false or empty.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> plain_values{
    {{"peft_type", "[\"LORA\"]"},
     {"bias", "[\"none\"]"},
     {"init_lora_weights", "[true, \"gaussian\", \"orthogonal\", \"eva\"]"},  // others change the base
     {"use_rslora", "[true]"}}};

/// Throws ConfigError for a variant that is computed in another way.
void require_plain(json::object const& config) {
  for (auto const& [key, value] : config) {
    if (is_unset(value) || std::ranges::find(free_keys, std::string_view(key)) != free_keys.end()) {
      continue;
    }
    auto const* const known =
        std::ranges::find(plain_values, std::string_view(key), &std::pair<std::string_view, std::string_view>::first);
    json::array const possible = known == plain_values.end() ? json::array() : json::parse(known->second).as_array();
    if (std::ranges::find(possible, value) == possible.end()) {
      throw ConfigError("{}: {} = {} cannot be imported; possible is {}", config_name, std::string(key),
                        json::serialize(value), possible.empty() ? "null or false" : json::serialize(possible));
    }
  }
}

/// The keys of [adapter] except the targets.
std::vector<std::string> adapter_settings(json::object const& config) {
  require_plain(config);
  try {
    auto const rank = config.at("r").to_number<std::int64_t>();
    auto const alpha = config.at("lora_alpha").to_number<double>();
    if (rank < 1) {
      throw DataError("r is below 1");
    }
    json::value const* const stabilized = find_key(config, "use_rslora");  // Kalajdzievski 2023: alpha / √rank
    bool const by_root = stabilized != nullptr && !is_unset(*stabilized);
    json::value const* const dropout = find_key(config, "lora_dropout");
    return {fmt::format("adapter.rank={}", rank),
            fmt::format("adapter.alpha={}", by_root ? alpha * std::sqrt(static_cast<double>(rank)) : alpha),
            fmt::format("adapter.dropout={}", dropout == nullptr ? 0 : dropout->to_number<double>())};
  } catch (std::exception const&) {
    throw DataError("{}: expected the numbers r (at least 1), lora_alpha and lora_dropout", config_name);
  }
}

/// Throws DataError for a tensor of another rank than the configuration's: a model of any rank takes long to build.
void require_rank(SafetensorsFiles const& files, json::object const& config) {
  auto const rank = config.at("r").to_number<std::int64_t>();
  for (auto const& [name, tensor] : files.tensors()) {
    std::size_t const axis = name.ends_with(peft_suffixes.front()) ? 0 : 1;
    if (tensor.shape.size() == 2 && tensor.shape[axis] != rank) {
      throw DataError("{}: {} has the shape [{}]; {} gives it the rank r = {}", tensors_name, name,
                      fmt::join(tensor.shape, ", "), config_name, rank);
    }
  }
}

/// Patterns for these projections among `all`: one for all layers' "self_attention.q", where each has an adapter.
std::vector<std::string> patterns_of(std::set<std::string> const& adapted, std::vector<std::string> const& all) {
  auto const kind_of = [](std::string const& projection) {
    std::size_t const last = projection.rfind('.');
    std::size_t const before = last == 0 || last == projection.npos ? projection.npos : projection.rfind('.', last - 1);
    return before == projection.npos ? projection : "*" + projection.substr(before);
  };
  std::set<std::string> mixed;
  for (std::string const& projection : all) {
    if (!adapted.contains(projection)) {
      mixed.insert(kind_of(projection));
    }
  }
  std::set<std::string> patterns;
  for (std::string const& projection : adapted) {
    std::string const kind = kind_of(projection);
    patterns.insert(mixed.contains(kind) ? projection : kind);
  }
  return {patterns.begin(), patterns.end()};
}

/// Maps our parameter names to the tensor names of a PEFT adapter.
struct PeftNames {
  std::map<std::string, std::string> theirs;  ///< PEFT's name by ours
  std::vector<std::string> targets;
};

PeftNames names_of(SafetensorsFiles const& files, Checkpoint const& base, ExchangedModel const& model) {
  std::map<std::string, std::string> projections;  // by their modules
  std::vector<std::string> all;
  for (TensorInfo const& tensor : base.tensors()) {
    auto const projection = without(tensor.name, weight_suffix);
    if (projection && tensor.shape.size() == 2) {
      all.push_back(*projection);
      std::string const name = origin_of(model.family, model.ours, tensor.name).name;
      projections[without(name, weight_suffix).value_or(name)] = *projection;
    }
  }
  PeftNames names;
  std::set<std::string> adapted;
  for (auto const& [theirs, tensor] : files.tensors()) {
    std::optional<std::string> ours;
    for (std::size_t which = 0; which < peft_suffixes.size(); ++which) {
      auto const module = without(theirs, peft_suffixes.at(which));
      auto const found = module && module->starts_with(peft_prefix)
                             ? projections.find(module->substr(peft_prefix.size()))
                             : projections.end();
      if (found != projections.end() && module_of(model, found->second) == found->first) {
        ours = found->second + adapter_suffixes.at(which);
        adapted.insert(found->second);
      }
    }
    if (!ours) {
      throw DataError("{}: the tensor {} is not an adapter of a projection of {}", tensors_name, theirs,
                      base.directory().string());
    }
    names.theirs[*ours] = theirs;
  }
  names.targets = patterns_of(adapted, all);
  return names;
}

/// Throws DataError unless PEFT's file has the adapters among these parameters, in their shapes, and no others.
void require_adapters(SafetensorsFiles const& files, PeftNames const& names,
                      std::vector<StreamedTensor> const& parameters) {
  std::size_t adapters = 0;
  for (StreamedTensor const& parameter : parameters) {
    if (!is_of_adapter(parameter.name)) {
      continue;
    }
    auto const found = names.theirs.find(parameter.name);
    if (found == names.theirs.end()) {
      throw DataError("{} has no tensor for {}", tensors_name, parameter.name);
    }
    if (auto const& shape = files.tensors().at(found->second).shape; shape != parameter.shape) {
      throw DataError("{}: {} has the shape [{}]; the base and {} give it [{}]", tensors_name, found->second,
                      fmt::join(shape, ", "), config_name, fmt::join(parameter.shape, ", "));
    }
    ++adapters;
  }
  if (adapters != names.theirs.size()) {
    throw DataError(
        "{} has {} tensors; the model has {} parameters for them: not all of them are of "
        "projections",
        tensors_name, names.theirs.size(), adapters);
  }
}

/// The checkpoint as the base of a run with these parameters.
CheckpointBase base_of(Checkpoint const& checkpoint, std::vector<StreamedTensor> const& parameters) {
  fs::path const directory = fs::weakly_canonical(checkpoint.directory());
  CheckpointBase base{directory.string(), checkpoint.digest(), {}};
  for (StreamedTensor const& parameter : parameters) {
    if (checkpoint.contains(parameter.name) && !is_of_adapter(parameter.name)) {
      base.names[parameter.name] = parameter.name;
      if (parameter.dtype == DType::bfloat16) {
        base.rounded.insert(parameter.name);
      }
    }
  }
  return base;
}

}  // namespace

fs::path merge_adapters(Checkpoint const& checkpoint, fs::path const& run) {
  MergedTensors stream(checkpoint, stored_config(checkpoint).model.adapter);
  CheckpointContents contents = checkpoint.contents();
  contents.config = to_toml(stored_config(checkpoint, {"adapter.rank=0", "train.frozen_precision=float32"}));
  contents.base = {};
  contents.state_begins.clear();
  return CheckpointStore(run / "checkpoints", 2).commit(Communicator::self(), contents, stream, 1).directory;
}

std::int64_t write_peft(Checkpoint const& checkpoint, ExchangedModel const& model, ExportOptions const& options,
                        fs::path const& directory) {
  std::vector<std::string> modules;
  std::vector<std::string> ours;
  SafetensorsWriter::Tensors tensors;
  for (TensorInfo const& tensor : checkpoint.tensors()) {
    for (std::size_t which = 0; which < adapter_suffixes.size(); ++which) {
      if (auto const projection = without(tensor.name, adapter_suffixes.at(which))) {
        std::string const module = module_of(model, *projection);
        tensors.emplace_back(fmt::format("{}{}{}", peft_prefix, module, peft_suffixes.at(which)),
                             ForeignTensor{tensor.shape, options.dtype});
        ours.push_back(tensor.name);
        if (which == 0) {
          modules.push_back(module);
        }
      }
    }
  }
  SafetensorsWriter writer(directory, tensors);
  for (std::string const& name : ours) {
    writer.write(checkpoint.read(name));
  }
  writer.finish();
  fs::rename(directory / "model.safetensors", directory / tensors_name);
  json::value const base = options.base.empty() ? name_of_base(checkpoint.contents()) : json::string(options.base);
  replace_file(directory / config_name,
               json::serialize(peft_config(model.ours.adapter, model.ours, base, modules)) + "\n");
  return std::ssize(ours);
}

bool is_peft(fs::path const& place) {
  return fs::exists(place / config_name);
}

ImportedModel import_peft(Execution& execution, fs::path const& from, std::string const& base_place,
                          fs::path const& run, ImportOptions const& options) {
  PendingDirectory directory(run);
  TrainedModelOptions model;
  model.checkpoint = base_place;
  auto const opened = open_checkpoints(model);
  Checkpoint const& base = opened.checkpoints.front();
  SafetensorsFiles const files = open_adapter(from);
  Config const before = stored_config(base);
  FamilyForm const chosen = choose_family("", base, before);
  require_same_form(chosen, before);
  json::object const adapter = read_peft_config(from);
  std::vector<std::string> settings = adapter_settings(adapter);  // before tensors of other variants
  PeftNames const names = names_of(files, base, {chosen.family, before.model, chosen.config_json});
  require_rank(files, adapter);
  settings.push_back("adapter.targets=" + to_toml(OptionValue(names.targets)));
  settings.push_back("train.initialize_from=" + to_toml(OptionValue(fs::weakly_canonical(base.directory()).string())));
  settings.push_back("run.directory=" + to_toml(OptionValue(run.string())));
  settings.insert(settings.end(), options.overrides.begin(), options.overrides.end());
  Config const config = stored_config(base, settings);
  CheckpointContents contents;
  contents.state.seed = config.train.seed;
  contents.config = to_toml(config);
  contents.source_model = base.contents().source_model;
  contents.target_model = base.contents().target_model;
  contents.origin = base.contents().origin;
  std::vector<StreamedTensor> parameters = parameters_of(execution, config, contents.vocabulary());
  contents.base = base_of(base, parameters);
  if (config.model.adapter.save_base) {
    contents.base.names.clear();
  }
  require_adapters(files, names, parameters);
  if (!config.model.adapter.save_base) {
    std::erase_if(parameters, [](StreamedTensor const& parameter) { return !is_of_adapter(parameter.name); });
  }
  MadeTensors stream(std::move(parameters),
                     [&](StreamedTensor const& parameter, IndexRange const& elements, std::span<float> into) {
                       auto const found = names.theirs.find(parameter.name);
                       found == names.theirs.end() ? read_elements(base, parameter.name, elements, into)
                                                   : files.read(found->second, elements, into);
                     });
  ImportedModel imported =
      write_imported(directory.path(), contents, stream, std::string(chosen.family.model_type) + " with adapters");
  if (options.probe) {
    imported.largest_logit = largest_probe_logit(execution, directory.path() / imported.checkpoint);
  }
  directory.commit();
  imported.checkpoint = run / imported.checkpoint;
  return imported;
}

}  // namespace heddle
