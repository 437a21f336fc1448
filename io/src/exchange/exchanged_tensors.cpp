#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/json.hpp>
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

std::int64_t rows_of(std::vector<std::int64_t> const& shape) {
  return shape.empty() ? 1 : shape.front();
}

/// The number of elements in a row.
std::int64_t columns_of(std::vector<std::int64_t> const& shape) {
  return shape.empty() ? 1 : product({shape.begin() + 1, shape.end()});
}

/// The number of elements of a parameter that are in their tensor, too.
std::int64_t own_elements(std::vector<std::int64_t> const& shape, TensorChange const& change) {
  return product(shape) - change.added_rows * columns_of(shape);
}

/// The shape of the other system's tensor of which our parameter is a part; all parts have `rows` rows.
std::vector<std::int64_t> their_shape(std::vector<std::int64_t> const& ours, TensorChange const& change,
                                      std::int64_t rows) {
  std::vector<std::int64_t> shape = ours;
  if (!shape.empty()) {
    shape.front() = rows - change.added_rows + change.skipped_rows;
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
        "the last row of {} is not zero: the target format does not store this row and assumes zero, so "
        "that the model cannot be exported",
        parameter);
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

/// Tensors of another system, in which those of a mixture's experts are one tensor [experts, …]: NAME with "[]" for the
/// number of an expert, where the numbers count from 0 and the shapes are equal.
class JoinedExperts final : public ForeignTensors {
 public:
  JoinedExperts(ForeignTensors const& from, Family const& family) : from_(from), tensors_(from.tensors()) {
    std::map<std::string, std::map<std::int64_t, std::string>> found;
    for (auto const& [name, tensor] : from.tensors()) {
      if (auto const expert = expert_tensor(family, name)) {
        found[expert->joined][expert->expert] = name;
      }
    }
    for (auto const& [joined, experts] : found) {
      ForeignTensor const& first = from.tensors().at(experts.begin()->second);
      bool const fits = experts.begin()->first == 0 && experts.rbegin()->first + 1 == std::ssize(experts) &&
                        std::ranges::all_of(experts, [&](auto const& expert) {
                          return from.tensors().at(expert.second).shape == first.shape;
                        });
      if (fits) {
        join(joined, first, experts);
      }
    }
  }

  std::map<std::string, ForeignTensor> const& tensors() const override { return tensors_; }
  void read(std::string const& name, IndexRange const& elements, std::span<float> into) const override {
    auto const found = experts_.find(name);
    if (found == experts_.end()) {
      from_.read(name, elements, into);
      return;
    }
    std::int64_t const size = from_.tensors().at(found->second.front()).elements();
    for (std::int64_t begin = elements.begin; begin < elements.end;) {
      std::int64_t const expert = begin / size;
      std::int64_t const end = std::min(elements.end, (expert + 1) * size);
      auto const place =
          into.subspan(static_cast<std::size_t>(begin - elements.begin), static_cast<std::size_t>(end - begin));
      from_.read(found->second.at(static_cast<std::size_t>(expert)), {begin - expert * size, end - expert * size},
                 place);
      begin = end;
    }
  }

 private:
  void join(std::string const& joined, ForeignTensor const& first, std::map<std::int64_t, std::string> const& experts) {
    ForeignTensor whole = first;
    whole.shape.insert(whole.shape.begin(), std::ssize(experts));
    std::vector<std::string>& names = experts_[joined];
    for (auto const& [number, name] : experts) {
      names.push_back(name);
      tensors_.erase(name);
    }
    tensors_[joined] = std::move(whole);
  }

  ForeignTensors const& from_;
  std::map<std::string, ForeignTensor> tensors_;
  std::map<std::string, std::vector<std::string>> experts_;  ///< the names of a joined tensor's experts, in their order
};

}  // namespace

ImportedTensors::ImportedTensors(ForeignTensors const& from, ExchangedModel const& model,
                                 std::vector<StreamedTensor> tensors)
    : from_(std::make_shared<JoinedExperts>(from, model.family)), model_(model) {
  tensors_ = std::move(tensors);
  std::map<std::string, std::map<int, std::int64_t>> rows;  // of the parts of each of their tensors
  for (StreamedTensor const& tensor : tensors_) {
    Source& source = sources_.emplace_back(Source{origin_of(model.family, model.ours, tensor.name)});
    source.origin.older.insert(source.origin.older.begin(), source.origin.name);
    for (std::string& name : source.origin.older) {
      name = present_name(model.family, *from_, name);
    }
    std::erase(source.origin.older, "");
    if (!source.origin.older.empty()) {
      source.origin.name = source.origin.older.front();
    }
    rows[source.origin.name][source.origin.change.part] = rows_of(tensor.shape);
  }
  for (Source& source : sources_) {
    for (auto const& [part, count] : rows.at(source.origin.name)) {
      source.rows_before += part < source.origin.change.part ? count : 0;
      source.rows += count;
    }
  }
  require_fit();
}

void ImportedTensors::require_fit() const {
  constexpr std::size_t max_shown = 12;
  std::vector<std::string> problems;
  auto const note = [&](std::string problem) {
    if (!problem.empty() && std::ranges::find(problems, problem) == problems.end()) {
      problems.push_back(std::move(problem));
    }
  };
  std::set<std::string> used;
  for (std::size_t index = 0; index < tensors_.size(); ++index) {
    note(shape_problem(tensors_[index], sources_[index]));
    used.insert(sources_[index].origin.name);
  }
  std::set<std::string> copies;
  for (Source const& source : sources_) {
    for (std::string const& name : source.origin.older) {
      bool const needless = name == model_.family.tables.shared;  // each stack has a table of its own
      if (!used.contains(name) && copies.insert(name).second && !needless &&
          !are_equal(*from_, name, source.origin.name)) {
        note(fmt::format("the tensor {} is not the copy of {} that a {} model with this config.json has", name,
                         source.origin.name, model_.family.model_type));
      }
    }
  }
  for (auto const& [name, tensor] : from_->tensors()) {
    if (!used.contains(name) && !copies.contains(name) && !is_ignored(model_.family, name)) {
      note(fmt::format("unexpected tensor {}: a {} model with this config.json has no such parameter", name,
                       model_.family.model_type));
    }
  }
  if (!problems.empty()) {
    std::size_t const left = problems.size() - std::min(problems.size(), max_shown);
    problems.resize(problems.size() - left);
    throw DataError("{}{}", fmt::join(problems, "\n  "),
                    left > 0 ? fmt::format("\n  and {} more of this kind", left) : "");
  }
}

std::string ImportedTensors::shape_problem(StreamedTensor const& tensor, Source const& source) const {
  std::string const& name = source.origin.name;
  if (name.empty()) {
    return "";
  }
  auto const found = from_->tensors().find(name);
  if (found == from_->tensors().end()) {
    return fmt::format(
        "there is no tensor {}, of which the parameter {} would be made; {} must belong to these weights, and the "
        "model must have been saved with its head, as {}",
        name, tensor.name, model_.family.source, model_.family.architecture);
  }
  auto const expected = their_shape(tensor.shape, source.origin.change, source.rows);
  return found->second.shape == expected
             ? ""
             : fmt::format("the tensor {} has the shape {}; config.json and the vocabulary give it {}", name,
                           found->second.shape, expected);
}

void ImportedTensors::read_transposed(Source const& source, std::vector<std::int64_t> const& shape,
                                      IndexRange const& elements, std::span<float> into) const {
  std::int64_t const columns = columns_of(shape);
  IndexRange const rows{elements.begin / columns, (elements.end + columns - 1) / columns};
  std::vector<float> strip(static_cast<std::size_t>(rows.count()));
  for (std::int64_t column = 0; column < columns; ++column) {
    std::int64_t const begin = column * source.rows + source.rows_before + rows.begin;
    from_->read(source.origin.name, {begin, begin + rows.count()}, strip);
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      std::int64_t const element = row * columns + column;
      if (element >= elements.begin && element < elements.end) {
        into[static_cast<std::size_t>(element - elements.begin)] = strip[static_cast<std::size_t>(row - rows.begin)];
      }
    }
  }
}

void ImportedTensors::read_rows(Source const& source, std::vector<std::int64_t> const& shape,
                                IndexRange const& elements, std::span<float> into) const {
  TensorChange const& change = source.origin.change;
  std::int64_t const columns = columns_of(shape);
  std::int64_t const group = change.group == nullptr ? 0 : change.group(model_.ours) * columns;
  for (std::int64_t begin = elements.begin; begin < elements.end;) {
    std::int64_t const end = group == 0 ? elements.end : std::min(elements.end, (begin / group + 1) * group);
    std::int64_t const theirs = group == 0 ? begin + (change.skipped_rows + source.rows_before) * columns
                                           : (begin / group * change.parts + change.part) * group + begin % group;
    from_->read(source.origin.name, {theirs, theirs + end - begin},
                into.subspan(static_cast<std::size_t>(begin - elements.begin), static_cast<std::size_t>(end - begin)));
    begin = end;
  }
}

void ImportedTensors::receive(TensorChunk const& chunk, std::span<float> elements) {
  StreamedTensor const& tensor = tensors_.at(chunk.tensor);
  Source const& source = sources_.at(chunk.tensor);
  TensorOrigin const& origin = source.origin;
  if (origin.name.empty()) {
    std::ranges::fill(elements, 0.F);
    return;
  }
  if (origin.change.transposed) {
    read_transposed(source, tensor.shape, chunk.elements, elements);
  } else {
    std::int64_t const theirs = own_elements(tensor.shape, origin.change);
    IndexRange const read{std::min(chunk.elements.begin, theirs), std::min(chunk.elements.end, theirs)};
    read_rows(source, tensor.shape, read, elements.first(static_cast<std::size_t>(read.count())));
    std::ranges::fill(elements.subspan(static_cast<std::size_t>(read.count())), origin.change.added_value);
  }
  double const scale = scale_of(origin.change, model_);
  if (scale != 1 || origin.change.added != 0) {
    std::ranges::transform(elements, elements.begin(), [&](float value) {
      return static_cast<float>((static_cast<double>(value) + origin.change.added) * scale);
    });
  }
}

std::vector<ExportedTensor> exported_tensors(Checkpoint const& checkpoint, ExchangedModel const& model) {
  std::vector<ExportedTensor> exported;
  std::map<std::string, std::size_t> places;
  std::map<std::string, std::int64_t> rows;  // of all parts so far
  for (TensorInfo const& tensor : checkpoint.tensors()) {
    auto const& [name, change, older, twice] = origin_of(model.family, model.ours, tensor.name);
    if (name.empty()) {
      for (TensorSlice const& slab : slabs_of(tensor)) {
        if (std::ranges::any_of(checkpoint.read(slab), [](float value) { return value != 0; })) {
          throw DataError("the parameter {} is not 0, and models of the family {} do not have it", tensor.name,
                          model.family.model_type);
        }
      }
      continue;
    }
    if (std::size_t const hole = name.find("[]"); hole != name.npos) {
      std::vector<std::int64_t> const shape(tensor.shape.begin() + 1, tensor.shape.end());
      for (std::int64_t expert = 0; expert < tensor.shape.front(); ++expert) {
        std::string numbered = name;
        exported.push_back({numbered.replace(hole, 2, std::to_string(expert)), shape, {{tensor.name, change, expert}}});
      }
      continue;
    }
    auto const [place, added] = places.try_emplace(name, exported.size());
    if (added) {
      exported.push_back({name, {}, {}});
    }
    rows[name] += rows_of(tensor.shape);
    exported[place->second].shape = their_shape(tensor.shape, change, rows[name]);
    exported[place->second].parts.push_back({tensor.name, change});
    for (std::string const& copy : twice ? older : std::vector<std::string>()) {
      exported.push_back({copy, their_shape(tensor.shape, change, rows[name]), {{tensor.name, change}}});
    }
  }
  for (ExportedTensor& tensor : exported) {
    std::ranges::sort(tensor.parts, {}, [](ExportedTensor::Part const& part) { return part.change.part; });
    if (std::ssize(tensor.parts) != tensor.parts.front().change.parts) {
      throw DataError("parameters for a part of the tensor {} are missing", tensor.name);
    }
  }
  return exported;
}

void read_exported(Checkpoint const& checkpoint, ExportedTensor const& tensor, ExchangedModel const& model,
                   std::function<void(std::span<float const>)> const& write) {
  TensorChange const& form = tensor.parts.front().change;
  std::vector<float> whole;  // of a tensor whose rows are our columns, or alternate between the parts
  for (auto const& [parameter, change, expert] : tensor.parts) {
    TensorInfo const& info = checkpoint.tensor(parameter);
    write(std::vector<float>(static_cast<std::size_t>(change.skipped_rows * columns_of(info.shape))));
    std::int64_t left = expert ? product(tensor.shape) : own_elements(info.shape, change);
    std::vector<TensorSlice> const slabs =
        expert ? std::vector<TensorSlice>{{.name = info.name, .ranges = {{*expert, *expert + 1}}}} : slabs_of(info);
    for (TensorSlice const& slab : slabs) {
      std::vector<float> values = checkpoint.read(slab);
      leave_out(values, left, parameter, change);
      double const scale = scale_of(change, model);
      if (scale != 1 || change.added != 0) {
        std::ranges::transform(values, values.begin(), [&, added = change.added](float value) {
          return static_cast<float>(static_cast<double>(value) / scale - added);
        });
      }
      if (change.transposed || change.group != nullptr) {
        whole.insert(whole.end(), values.begin(), values.end());
      } else {
        write(values);
      }
    }
  }
  if (form.group != nullptr) {
    std::size_t const part = whole.size() / tensor.parts.size();
    auto const group = static_cast<std::size_t>(form.group(model.ours) * columns_of(tensor.shape));
    for (std::size_t begin = 0; begin < part; begin += group) {
      for (std::size_t each = 0; each < tensor.parts.size(); ++each) {
        write(std::span(whole).subspan(each * part + begin, group));
      }
    }
  } else if (!whole.empty()) {
    write(transposed(whole, tensor.shape.back(), std::ssize(whole) / tensor.shape.back()));
  }
}

}  // namespace heddle
