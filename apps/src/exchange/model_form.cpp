#include "exchange/model_form.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <heddle/core/attention/attention_core.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/core/layers/token_embedding.hpp>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <numeric>
#include <ranges>

#include "exchange/importing.hpp"

namespace heddle {

namespace {

namespace fs = std::filesystem;

/// The output's bias of a piece that is never generated, as imports of Marian's files have it.
constexpr float never_bias = -10'000;

bool has_setting(Family const& family, std::string_view setting) {
  return std::ranges::find(family.settings, setting) != family.settings.end();
}

/// The family's form of a model with sinusoidal positions: pairs of columns as the family has them, or a table where it
/// has one and computes no such positions.
void set_sinusoids(Family const& family, ModelConfig& model) {
  bool const halves = has_setting(family, "model.position_layout=halves");
  bool const needs_paper = has_setting(family, "model.position_frequencies=paper");
  bool const has_table = has_setting(family, "model.positions=learned");
  bool const may_have_table =
      has_table || std::ranges::any_of(family.keys, [](KeyRule const& rule) { return rule.ours == "model.positions"; });
  if (!may_have_table && !has_setting(family, "model.positions=sinusoidal")) {
    return;  // the kind of positions stands in the way, and no key of sinusoids
  }
  bool const is_paper = model.position_frequencies == PositionFrequencies::paper ||
                        (model.position_frequencies == PositionFrequencies::automatic &&
                         model.position_layout == PairLayout::interleaved);
  model.position_layout = halves ? PairLayout::halves : has_table ? PairLayout::interleaved : model.position_layout;
  bool const is_computed = !has_table && (!needs_paper || is_paper) && (!may_have_table || model.first_position == 0);
  if (may_have_table && !is_computed) {
    model.positions = Positions::learned;
    model.first_position = 0;
    model.position_frequencies = needs_paper ? PositionFrequencies::paper : PositionFrequencies::automatic;
    return;
  }
  bool const named = std::ranges::any_of(
      family.settings, [](std::string_view setting) { return setting.starts_with("model.position_frequencies="); });
  model.position_frequencies = is_paper           ? PositionFrequencies::paper
                               : halves && !named ? PositionFrequencies::automatic
                                                  : PositionFrequencies::tensor2tensor;
}

/// The axes of a parameter that are the columns of the residual stream, which travels from layer to layer.
struct StreamAxes {
  bool rows = false;     ///< of a matrix
  bool columns = false;  ///< of a matrix or a vector
};

/// `projected`: the SSRU that the parameter is of has a projection; else its columns are the stream's.
StreamAxes stream_axes(std::string_view parameter, bool projected) {
  auto const has = [&](std::string_view part) { return parameter.find(part) != parameter.npos; };
  bool const is_bias = parameter.ends_with(".bias");
  if (has("norm.")) {
    return {.columns = !has(".q_norm.") && !has(".k_norm.")};
  }
  bool const both = has(".transform.") || has("_gate.") || (has(".ssru.") && !projected);  // reads it, too
  if (has(".out.") || has(".down.") || both) {
    return {.rows = !is_bias, .columns = is_bias || both};
  }
  return {.columns = !is_bias && !parameter.ends_with(".attention_bias.weight")};
}

/// The indices in a checkpoint of the elements of an axis, in their new order; -1: the checkpoint lacks it.
using Order = std::vector<std::int64_t>;

Order same_order(std::int64_t size) {
  Order order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

/// An order of columns: in each block of `block` of them the first one of each pair, then the second one of each pair.
Order halves_of_pairs(std::int64_t size, std::int64_t block) {
  Order order;
  for (std::int64_t begin = 0; begin < size; begin += block) {
    for (std::int64_t const first : {0, 1}) {
      for (std::int64_t column = begin + first; column < begin + block; column += 2) {
        order.push_back(column);
      }
    }
  }
  return order;
}

/// The columns of a head in a layer's self-attention; 0 for a parameter that does not make its queries or keys.
std::int64_t columns_of_heads(ModelConfig const& model, std::string const& parameter) {
  std::size_t const end = parameter.find(".layers.");
  if (end == parameter.npos || (parameter.find(".self_attention.q") == parameter.npos &&
                                parameter.find(".self_attention.k") == parameter.npos)) {
    return 0;
  }
  std::string const stack = parameter.substr(0, end);
  StackMember const config = stack_kind(stack).config;
  std::int64_t const layer = std::stoll(parameter.substr(end + std::string_view(".layers.").size()));
  return attention_sizes(layer_config(model, config, layer),
                         layer_options(model.*config, stack, layer, "self_attention"))
      .head_dim;
}

/// The elements of an index of the first axis; of a vector, all of them.
std::int64_t columns_of(std::vector<std::int64_t> const& shape) {
  return std::accumulate(shape.begin() + (shape.size() > 1 ? 1 : 0), shape.end(), std::int64_t{1}, std::multiplies());
}

/// The parameters of a form, made of a checkpoint's as they are asked for.
class FormTensors final : public OneRankTensors {
 public:
  FormTensors(Checkpoint const& from, ModelConfig const& before, ModelForm const& form,
              std::vector<StreamedTensor> tensors)
      : from_(from), before_(before), form_(form) {
    tensors_ = std::move(tensors);
    for (StreamedTensor const& tensor : tensors_) {
      std::string const source = source_of(tensor.name);
      bool const is_new = source.empty() || source == "output.bias" || source.ends_with(".positions.weight");
      if (!is_new && !from.contains(source)) {
        throw Error("no parameter " + tensor.name + " in " + from.directory().string());
      }
    }
  }

  void receive(TensorChunk const& chunk, std::span<float> elements) override {
    std::string const& name = tensors_.at(chunk.tensor).name;
    std::vector<std::int64_t> const& shape = tensors_.at(chunk.tensor).shape;
    std::int64_t const columns = columns_of(shape);
    IndexRange const rows{chunk.elements.begin / columns, (chunk.elements.end + columns - 1) / columns};
    std::vector<float> const values = read_rows(chunk.tensor, rows);
    Order const order = order_of(name, shape, std::ssize(shape) - 1);
    bool const is_bias = name == "output.bias";
    for (std::int64_t element = chunk.elements.begin; element < chunk.elements.end; ++element) {
      std::int64_t const column = order[static_cast<std::size_t>(element % columns)];
      std::int64_t const place = (element / columns - rows.begin) * source_columns(name, columns) + column;
      elements[static_cast<std::size_t>(element - chunk.elements.begin)] = column >= 0
                                                                               ? values[static_cast<std::size_t>(place)]
                                                                           : is_bias ? never_bias
                                                                                     : 0;
    }
  }

 private:
  Order const& pieces_of(std::string const& name) const {
    return name.starts_with("encoder.") ? form_.source_pieces : form_.target_pieces;
  }

  /// The order of an axis of a parameter; of experts' matrices, [experts, rows, columns], nothing is moved.
  Order order_of(std::string const& name, std::vector<std::int64_t> const& shape, std::int64_t axis) const {
    std::int64_t const size = axis == 0 ? shape.front() : columns_of(shape);
    if (shape.size() > 2) {
      return same_order(size);
    }
    bool const last = axis == std::ssize(shape) - 1;
    bool const table = name.ends_with("embedding.weight") || name == "output.weight";
    if ((table && !last) || name == "output.bias") {
      Order const& pieces = pieces_of(name);
      return pieces.empty() ? same_order(size) : pieces;
    }
    if (before_.position_layout == form_.config.model.position_layout ||
        form_.config.model.position_layout == PairLayout::interleaved) {
      return same_order(size);
    }
    if (before_.positions == Positions::rotary) {
      std::int64_t const head = axis == 0 ? columns_of_heads(before_, name) : 0;
      return head == 0 ? same_order(size) : halves_of_pairs(size, head);
    }
    std::string const source = source_of(name);
    std::string const unit = source.substr(0, source.find(".ssru."));
    StreamAxes const axes = stream_axes(name, from_.contains(unit + ".ssru.out.weight"));
    return (last ? axes.columns : axes.rows) ? halves_of_pairs(size, size) : same_order(size);
  }

  /// The checkpoint's name of a parameter; "" for those of a layer that it lacks.
  std::string source_of(std::string const& name) const {
    for (std::string const& stack : form_.longer_stacks) {
      std::string const start = stack + ".layers.";
      if (name.starts_with(start)) {
        std::size_t const end = name.find('.', start.size());
        std::int64_t const layer = std::stoll(name.substr(start.size(), end - start.size()));
        return layer == 0 ? "" : fmt::format("{}{}{}", start, layer - 1, name.substr(end));
      }
    }
    return name;
  }

  /// The number of a row's elements in the checkpoint.
  std::int64_t source_columns(std::string const& name, std::int64_t columns) const {
    std::string const source = source_of(name);
    return from_.contains(source) ? columns_of(from_.tensor(source).shape) : columns;
  }
  /// Fills rows of a parameter that the checkpoint lacks.
  void make_rows(std::string const& name, std::int64_t first, std::span<float> values) const;

  /// Rows of the form, with the checkpoint's columns; a vector is one row.
  std::vector<float> read_rows(std::size_t tensor, IndexRange const& rows) const;

  Checkpoint const& from_;
  ModelConfig const& before_;
  ModelForm const& form_;
};

void FormTensors::make_rows(std::string const& name, std::int64_t first, std::span<float> values) const {
  if (source_of(name).empty()) {
    std::ranges::fill(values, name.ends_with("norm.weight") ? 1.F : 0.F);
  } else if (name.ends_with(".positions.weight")) {
    std::vector<double> const table = sinusoidal_positions(before_);
    std::copy_n(table.begin() + first * before_.d_model, values.size(), values.begin());
  }
}

std::vector<float> FormTensors::read_rows(std::size_t tensor, IndexRange const& rows) const {
  std::string const& name = tensors_.at(tensor).name;
  std::vector<std::int64_t> const& shape = tensors_.at(tensor).shape;
  std::string const source = source_of(name);
  auto const columns = static_cast<std::size_t>(source_columns(name, columns_of(shape)));
  std::vector<float> values(static_cast<std::size_t>(rows.count()) * columns);
  Order const order = shape.size() > 1 ? order_of(name, shape, 0) : Order{0};
  bool const is_new = !from_.contains(source);
  std::vector<SliceInto> wanted;
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    std::int64_t const index = order[static_cast<std::size_t>(row)];
    auto const into = std::span(values).subspan(static_cast<std::size_t>(row - rows.begin) * columns, columns);
    if (index >= 0) {
      wanted.push_back(
          {shape.size() == 1 ? TensorSlice{source} : TensorSlice{source, value_key, {{index, index + 1}}}, into});
    }
  }
  if (is_new) {
    make_rows(name, rows.begin, values);
  } else {
    from_.read(wanted);
  }
  if (auto const added = form_.added.find(name); added != form_.added.end()) {
    for (SliceInto const& slice : wanted) {
      std::ranges::transform(slice.into, added->second, slice.into.begin(), std::plus<>());
    }
  }
  return values;
}

}  // namespace

Config in_form_of(Family const& family, Config const& config) {
  Config form = config;
  ModelConfig& model = form.model;
  bool const halves = has_setting(family, "model.position_layout=halves");
  if (model.positions == Positions::sinusoidal && model.d_model % 2 == 0) {
    set_sinusoids(family, model);
  } else if (model.positions == Positions::rotary && halves) {
    model.position_layout = PairLayout::halves;
  }
  model.output_bias = model.output_bias || has_setting(family, "model.output_bias=true");
  return form;
}

fs::path write_form(Execution& execution, Checkpoint const& checkpoint, Config const& before, ModelForm const& form,
                    fs::path const& run) {
  CheckpointContents contents = checkpoint.contents();
  contents.config = to_toml(form.config);
  contents.source_model = form.source_model;
  contents.target_model = form.target_model;
  contents.origin = form.origin;
  contents.base = {};
  contents.state_begins.clear();
  FormTensors stream(checkpoint, before.model, form, parameters_of(execution, form.config, contents.vocabulary()));
  return CheckpointStore(run / "checkpoints", 2).commit(Communicator::self(), contents, stream, 1).directory;
}

}  // namespace heddle
