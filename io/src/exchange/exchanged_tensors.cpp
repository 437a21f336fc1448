#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/json.hpp>
#include <functional>
#include <heddle/core/base/error.hpp>
#include <heddle/io/exchange/exchanged_tensors.hpp>
#include <map>
#include <numeric>
#include <set>
#include <utility>

namespace heddle {

namespace {

std::int64_t product(std::vector<std::int64_t> const& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

double scale_of(TensorChange const& change, ExchangedModel const& model) {
  return change.scale == nullptr ? 1 : change.scale(model.theirs);
}

/// The number of elements in a row.
std::int64_t columns_of(std::vector<std::int64_t> const& shape) {
  return shape.empty() ? 1 : product({shape.begin() + 1, shape.end()});
}

/// The number of elements of a parameter that are in their tensor, too.
std::int64_t own_elements(std::vector<std::int64_t> const& shape, TensorChange const& change) {
  return product(shape) - change.added_rows * columns_of(shape);
}

/// The shape of the other system's tensor of which our parameter is a part.
std::vector<std::int64_t> their_shape(std::vector<std::int64_t> const& ours, TensorChange const& change) {
  std::vector<std::int64_t> shape = ours;
  if (!shape.empty()) {
    shape.front() = (shape.front() - change.added_rows) * change.parts + change.skipped_rows;
  }
  if (change.transposed) {
    std::ranges::reverse(shape);
  }
  if (change.one_row) {
    shape.insert(shape.begin(), 1);
  }
  return shape;
}

/// Leaves out the elements of a piece that only our parameter has; `left` is the number that the other tensor has from
/// its beginning on, and then from its end on.
void leave_out(std::vector<float>& values, std::int64_t& left, std::string const& parameter,
               TensorChange const& change) {
  auto const end = values.begin() + std::min(left, std::ssize(values));
  left -= end - values.begin();
  if (change.added_value == 0 && std::any_of(end, values.end(), [](float value) { return value != 0; })) {
    throw DataError(
        fmt::format("the last row of {} is not zero: the target format does not store this row and assumes zero, so "
                    "that the model cannot be exported",
                    parameter));
  }
  values.erase(end, values.end());
}

/// [rows, columns] → [columns, rows].
std::vector<float> transposed(std::vector<float> const& values, std::int64_t rows, std::int64_t columns) {
  std::vector<float> result(values.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      result[static_cast<std::size_t>(column * rows + row)] = values[static_cast<std::size_t>(row * columns + column)];
    }
  }
  return result;
}

}  // namespace

ImportedTensors::ImportedTensors(ForeignTensors const& from, ExchangedModel const& model,
                                 std::vector<StreamedTensor> tensors)
    : from_(from), model_(model) {
  tensors_ = std::move(tensors);
  std::set<std::string> used;
  for (StreamedTensor const& tensor : tensors_) {
    TensorOrigin& origin = origins_.emplace_back(origin_of(model.family, model.ours, tensor.name));
    for (std::string const& name : origin.older) {
      if (!from.tensors().contains(origin.name) && from.tensors().contains(name)) {
        origin.name = name;
      }
    }
    std::string_view const prefix = model.family.optional_prefix;
    if (origin.name.starts_with(prefix) && !from.tensors().contains(origin.name) &&
        from.tensors().contains(origin.name.substr(prefix.size()))) {
      origin.name.erase(0, prefix.size());
    }
    require_shape(tensor, origin);
    used.insert(origin.name);
  }
  for (auto const& [name, tensor] : from.tensors()) {
    if (!used.contains(name) && !is_ignored(model.family, name)) {
      throw DataError(fmt::format("unexpected tensor {}: a {} model with this config.json has no such parameter", name,
                                  model.family.model_type));
    }
  }
}

void ImportedTensors::require_shape(StreamedTensor const& tensor, TensorOrigin const& origin) const {
  if (origin.name.empty()) {
    return;
  }
  auto const found = from_.tensors().find(origin.name);
  if (found == from_.tensors().end()) {
    throw DataError(
        fmt::format("there is no tensor {}, of which the parameter {} would be made; {} must belong to these weights, "
                    "and the model "
                    "must have been saved with its head, as {}",
                    origin.name, tensor.name, model_.family.source, model_.family.architecture));
  }
  auto const expected = their_shape(tensor.shape, origin.change);
  if (found->second.shape != expected) {
    throw DataError(fmt::format("the tensor {} has the shape {}; config.json and the vocabulary give it {}",
                                origin.name, found->second.shape, expected));
  }
}

void ImportedTensors::read_transposed(TensorOrigin const& origin, std::vector<std::int64_t> const& shape,
                                      IndexRange const& elements, std::span<float> into) const {
  std::int64_t const columns = columns_of(shape);
  IndexRange const rows{elements.begin / columns, (elements.end + columns - 1) / columns};
  std::int64_t const row_of_theirs = shape.front() * origin.change.parts;
  std::vector<float> strip(static_cast<std::size_t>(rows.count()));
  for (std::int64_t column = 0; column < columns; ++column) {
    std::int64_t const begin = column * row_of_theirs + shape.front() * origin.change.part + rows.begin;
    from_.read(origin.name, {begin, begin + rows.count()}, strip);
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      std::int64_t const element = row * columns + column;
      if (element >= elements.begin && element < elements.end) {
        into[static_cast<std::size_t>(element - elements.begin)] = strip[static_cast<std::size_t>(row - rows.begin)];
      }
    }
  }
}

void ImportedTensors::receive(TensorChunk const& chunk, std::span<float> elements) {
  StreamedTensor const& tensor = tensors_.at(chunk.tensor);
  TensorOrigin const& origin = origins_.at(chunk.tensor);
  if (origin.name.empty()) {
    std::ranges::fill(elements, 0.F);
    return;
  }
  if (origin.change.transposed) {
    read_transposed(origin, tensor.shape, chunk.elements, elements);
  } else {
    std::int64_t const rows =
        origin.change.skipped_rows + origin.change.part * (tensor.shape.empty() ? 1 : tensor.shape.front());
    std::int64_t const before = rows * columns_of(tensor.shape);
    std::int64_t const theirs = own_elements(tensor.shape, origin.change);
    IndexRange const read{std::min(chunk.elements.begin, theirs), std::min(chunk.elements.end, theirs)};
    from_.read(origin.name, {before + read.begin, before + read.end},
               elements.first(static_cast<std::size_t>(read.count())));
    std::ranges::fill(elements.subspan(static_cast<std::size_t>(read.count())), origin.change.added_value);
  }
  double const scale = scale_of(origin.change, model_);
  if (scale != 1 || origin.change.added != 0) {
    std::ranges::transform(elements, elements.begin(), [&](float value) {
      return static_cast<float>(static_cast<double>(value) * scale + origin.change.added);
    });
  }
}

std::vector<ExportedTensor> exported_tensors(Checkpoint const& checkpoint, ExchangedModel const& model) {
  std::vector<ExportedTensor> exported;
  std::map<std::string, std::size_t> places;
  std::map<std::string, std::int64_t> rows;  // of all parts: with fewer heads of keys they are not equal
  for (TensorInfo const& tensor : checkpoint.tensors()) {
    auto const& [name, change, older, twice] = origin_of(model.family, model.ours, tensor.name);
    if (name.empty()) {
      for (TensorSlice const& slab : slabs_of(tensor)) {
        if (std::ranges::any_of(checkpoint.read(slab), [](float value) { return value != 0; })) {
          throw DataError(fmt::format("the parameter {} is not 0, and models of the family {} do not have it",
                                      tensor.name, model.family.model_type));
        }
      }
      continue;
    }
    auto const [place, added] = places.try_emplace(name, exported.size());
    if (added) {
      exported.push_back({name, their_shape(tensor.shape, change), {}});
    }
    exported[place->second].parts.push_back({tensor.name, change});
    for (std::string const& copy : twice ? older : std::vector<std::string>()) {
      exported.push_back({copy, their_shape(tensor.shape, change), {{tensor.name, change}}});
    }
    rows[name] += tensor.shape.empty() ? 0 : tensor.shape.front();
  }
  for (ExportedTensor& tensor : exported) {
    std::ranges::sort(tensor.parts, {}, [](ExportedTensor::Part const& part) { return part.change.part; });
    if (std::ssize(tensor.parts) != tensor.parts.front().change.parts) {
      throw DataError(fmt::format("parameters for a part of the tensor {} are missing", tensor.name));
    }
    if (tensor.parts.size() > 1) {
      bool const transposed = tensor.parts.front().change.transposed;
      (transposed ? tensor.shape.back() : tensor.shape.front()) = rows.at(tensor.name);
    }
  }
  return exported;
}

void read_exported(Checkpoint const& checkpoint, ExportedTensor const& tensor, ExchangedModel const& model,
                   std::function<void(std::span<float const>)> const& write) {
  std::vector<float> whole;  // of a transposed tensor: its rows are our columns
  for (auto const& [parameter, change] : tensor.parts) {
    TensorInfo const& info = checkpoint.tensor(parameter);
    write(std::vector<float>(static_cast<std::size_t>(change.skipped_rows * columns_of(info.shape))));
    std::int64_t left = own_elements(info.shape, change);
    for (TensorSlice const& slab : slabs_of(info)) {
      std::vector<float> values = checkpoint.read(slab);
      leave_out(values, left, parameter, change);
      double const scale = scale_of(change, model);
      if (scale != 1 || change.added != 0) {
        std::ranges::transform(values, values.begin(), [&, added = change.added](float value) {
          return static_cast<float>((static_cast<double>(value) - added) / scale);
        });
      }
      if (change.transposed) {
        whole.insert(whole.end(), values.begin(), values.end());
      } else {
        write(values);
      }
    }
  }
  if (!whole.empty()) {
    write(transposed(whole, tensor.shape.back(), std::ssize(whole) / tensor.shape.back()));
  }
}

}  // namespace heddle
