#pragma once

#include <array>
#include <boost/json/fwd.hpp>
#include <cstdint>
#include <heddle/core/config/config.hpp>
#include <heddle/io/formats/foreign_tensors.hpp>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// A key of another system's config.json and one of ours. Several rows with one `theirs` set several keys of ours;
/// several that give one of ours must give it the same value.
struct KeyRule {
  /// A value of theirs, as JSON text, and ours, as TOML text; "": ours is not set.
  struct Value {
    std::string_view theirs;
    std::string_view ours;
  };

  std::string theirs;  ///< "d_model"; alternatives "a|b", an export writes the first; "a.b": b in the object a
  std::string ours;    ///< "model.d_model"; "": we have no such key, and theirs must be one of `values`
  std::string_view absent = {};                              ///< their value if there is none or null: JSON text, or
                                                             ///< "@KEY", another key's; "": ours is not set
  std::vector<Value> values = {};                            ///< empty: a value is the same in both
  std::int64_t surplus = 0;                                  ///< theirs is that much larger than ours
  std::string (*unset)(ModelConfig const& model) = nullptr;  ///< ours, an option, if it is not set
  /// The models for which an export writes the key; null: all, but none for an "a.b" that has no key of ours.
  bool (*written)(ModelConfig const& model) = nullptr;
  bool null_is_zero = false;  ///< a null of theirs, unlike a missing key, is 0, or an option that is not set
  bool only_written = false;  ///< an import does not read it
};

/// The layers of a stack that have a window: those that a list of theirs calls "sliding_attention" and not
/// "full_attention".
struct WindowRule {
  std::string_view stack;    ///< ours
  std::string_view types;    ///< the list, "layer_types"
  std::string_view window;   ///< "sliding_window"
  std::int64_t surplus = 0;  ///< theirs is that much larger than ours
  /// The key of these layers' rotary_base, alternatives "a|b", of which an export writes the last; "": they have the
  /// model's.
  std::string_view rotary_base = {};
};

/// The layers of a stack whose last sublayer is a mixture of experts. With n of them among `layers` layers the distance
/// is layers / n, and the first is the second layer (Switch Transformers in transformers; 0 counts as 1).
struct MixtureRule {
  std::string_view stack;  ///< ours
  std::string_view count;  ///< the key of n
  std::int64_t absent = 0;
};

/// Names of a family's tables of tokens; "": it has no such tensor. Files may have copies of one table under several of
/// these names: those that differ are tables of their own, whatever config.json says, as to transformers 5.
struct TableNames {
  std::string_view shared;        ///< of a model of one stack: its table
  std::string_view encoder = {};  ///< the stacks' own; else `shared` is theirs
  std::string_view decoder = {};
  std::string_view output = {};
  bool output_is_decoders = false;  ///< a tied output is the decoder's table, also where it is not the shared one
};

/// How the values of one of our parameters follow from a tensor of theirs.
struct TensorChange {
  bool transposed = false;        ///< theirs is [columns, rows]
  bool one_row = false;           ///< theirs is [1, n], ours [n]
  std::int64_t skipped_rows = 0;  ///< rows of theirs before ours, which nothing reads
  std::int64_t added_rows = 0;    ///< rows of ours after theirs, made of `added_value`; an export leaves them out
  float added_value = 0;          ///< if it is 0, an export needs rows of 0
  int part = 0;                   ///< ours is this one of `parts` pieces of the rows, which have ours' numbers of rows
  int parts = 1;
  /// The number of rows that alternate between the parts, so that the rows of a head are neighbours; null: all of them.
  std::int64_t (*group)(ModelConfig const& model) = nullptr;
  double added = 0;                                              ///< ours = (theirs + added) * scale
  double (*scale)(boost::json::object const& config) = nullptr;  ///< of config.json; null: 1
};

/// A tensor of theirs and a parameter of ours; "{}" stands for the number of a layer. "[]" in theirs stands for the
/// number of an expert: they have a tensor for each index of ours' first axis.
struct TensorRule {
  /// "": they have none, and ours must be 0. Alternatives "a|b": the first that a file has is read, and others that it
  /// has, unless they are other parameters' tensors, must be copies of it. An export writes the first.
  std::string theirs;
  std::string ours;
  TensorChange change = {};
  bool (*where)(ModelConfig const& model) = nullptr;  ///< the models that the rule is for; null: all
  bool twice = false;                                 ///< an export writes all alternatives
};

/// A family of models of other systems: all that exchange knows of it.
struct Family {
  std::string_view model_type;             ///< of config.json
  std::string_view architecture;           ///< the class in `architectures`
  std::vector<std::string_view> settings;  ///< keys of ours that all its models share: "model.norm=pre"
  std::vector<KeyRule> keys;
  std::vector<TensorRule> tensors;
  std::vector<std::string_view> ignored =
      {};  ///< patterns of tensors that no result depends on, to transformers either
  /// Puts into config.json what only the tensors say, before the keys are read; null: nothing.
  void (*complete)(boost::json::object& config, ForeignTensors const& tensors) = nullptr;
  std::vector<WindowRule> windows = {};
  std::vector<MixtureRule> mixtures = {};
  TableNames tables = {};
  std::string_view optional_prefix = {};    ///< of tensors' names; files of the model without its head lack it
  std::int64_t first_layer = 0;             ///< the number of their first layer
  std::string_view source = "config.json";  ///< the place of the keys, for messages
  std::vector<std::string> sinusoids = {};  ///< tensors of computed positions, which an export writes
  std::vector<std::array<std::string_view, 2>> aliases = {};  ///< other names of keys, which transformers reads, too
};

/// All families.
std::span<Family const> families();
/// The family of a config.json. Throws DataError if it is none of them, which says why where that is known, else lists
/// all; ConfigError for quantized weights.
Family const& family_of(boost::json::object const& config);
/// The family of that name. Throws UsageError, which lists all, if there is none.
Family const& family_named(std::string const& model_type);

/// Puts into config.json what only the tensors say: Family::complete, and which tables of tokens the model has.
void complete_config(Family const& family, boost::json::object& config, ForeignTensors const& tensors);
/// The name under which the files have a tensor, which may lack the family's optional prefix; "" if they do not.
std::string present_name(Family const& family, ForeignTensors const& tensors, std::string const& name);
/// Whether two tensors have the same shape and elements.
bool are_equal(ForeignTensors const& tensors, std::string const& one, std::string const& other);

/// A member of an object: "a.b" is b in the object a. Null if it is missing or null.
boost::json::value const* find_key(boost::json::object const& config, std::string_view path);
/// The values at a member: what stands for it where it is missing or of another kind.
std::string text_at(boost::json::object const& config, std::string_view path);
bool flag_at(boost::json::object const& config, std::string_view path, bool absent = false);
std::int64_t integer_at(boost::json::object const& config, std::string_view path, std::int64_t absent);

/// Our keys for a model of the family, "section.key=value". Texts have at most 8,192 tokens where positions follow from
/// no table. Throws ConfigError for keys of config.json that stand in the way: each with its value, and the values that
/// would do.
std::vector<std::string> settings_of(Family const& family, boost::json::object const& config);
/// Describes each key that keeps our model out of the family in a line, with its value and those that would do.
std::vector<std::string> obstacles_of(Family const& family, Config const& config);
/// The config.json of our model, without its vocabulary's keys. Throws ConfigError with all lines of obstacles_of.
boost::json::object config_json(Family const& family, Config const& config);

/// Gives the config.json `made` of an import's model back what an import changed of `theirs`: the length of texts that
/// settings_of lowered, and the scale of queries, which went into their weights.
void restore_keys(Family const& family, boost::json::object const& theirs, boost::json::object& made);

/// The origin of a parameter's numbers.
struct TensorOrigin {
  std::string name;  ///< of their tensor; "": they have none, all are 0
  TensorChange change;
  std::vector<std::string> older;  ///< names that the tensor has in other files
  bool twice = false;              ///< an export writes it under these names, too
};
/// The origin of our parameter of this name. Throws DataError if the family has none.
TensorOrigin origin_of(Family const& family, ModelConfig const& model, std::string const& parameter);
/// A tensor of theirs that is one expert's part of a parameter of ours.
struct ExpertTensor {
  std::string joined;  ///< its name with "[]" for the number of the expert
  std::int64_t expert = 0;
};
/// Nothing where the tensor is not one expert's.
std::optional<ExpertTensor> expert_tensor(Family const& family, std::string const& tensor);
/// Whether an import may leave a tensor of theirs out.
bool is_ignored(Family const& family, std::string const& tensor);

}  // namespace heddle
