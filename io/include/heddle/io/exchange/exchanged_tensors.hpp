#pragma once

#include <boost/json/fwd.hpp>
#include <functional>
#include <heddle/core/parallel/tensor_stream.hpp>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <heddle/io/families/family.hpp>
#include <heddle/io/formats/foreign_tensors.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace heddle {

/// A model as both systems describe it.
struct ExchangedModel {
  Family const& family;
  ModelConfig const& ours;
  boost::json::object const& theirs;  ///< its config.json
};

/// The parameters of a Heddle model, made of another system's tensors as they are asked for.
class ImportedTensors final : public OneRankTensors {
 public:
  /// Keeps references to `from` and to what `model` refers to. Throws DataError, which lists them, for parameters
  /// without a tensor, for those of another shape, for tensors that repeat others and differ from them, and for tensors
  /// that no parameter is made of, unless the family ignores them.
  ImportedTensors(ForeignTensors const& from, ExchangedModel const& model, std::vector<StreamedTensor> tensors);

  /// Throws as ForeignTensors::read does.
  void receive(TensorChunk const& chunk, std::span<float> elements) override;

 private:
  /// A parameter's tensor, and its rows there, which are those of all parts.
  struct Source {
    TensorOrigin origin;  ///< its `older` are all names that the files have
    std::int64_t rows_before = 0, rows = 0;
  };
  void require_fit() const;
  /// "" where a parameter's tensor has its shape.
  std::string shape_problem(StreamedTensor const& tensor, Source const& source) const;
  /// Reads elements of a parameter whose tensor is not transposed.
  void read_rows(Source const& source, std::vector<std::int64_t> const& shape, IndexRange const& elements,
                 std::span<float> into) const;
  void read_transposed(Source const& source, std::vector<std::int64_t> const& shape, IndexRange const& elements,
                       std::span<float> into) const;

  std::shared_ptr<ForeignTensors const> from_;  ///< with the tensors of a mixture's experts joined
  ExchangedModel model_;
  std::vector<Source> sources_;  ///< of tensors_
};

/// A tensor of another system, made of the parameters of a checkpoint.
struct ExportedTensor {
  struct Part {
    std::string parameter;
    TensorChange change;
    std::optional<std::int64_t> expert = {};  ///< only this index of the parameter's first axis
  };
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<Part> parts;  ///< by their places in it
};
/// All tensors of a model, in the order of its parameters. Throws DataError as origin_of does, and for a parameter that
/// is not 0 where the family has no tensor for it.
std::vector<ExportedTensor> exported_tensors(Checkpoint const& checkpoint, ExchangedModel const& model);
/// Reads the elements of such a tensor, row major, and passes them to `write` in pieces, in order. One that is
/// transposed is in memory as a whole.
void read_exported(Checkpoint const& checkpoint, ExportedTensor const& tensor, ExchangedModel const& model,
                   std::function<void(std::span<float const>)> const& write);

}  // namespace heddle
