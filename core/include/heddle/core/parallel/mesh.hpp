#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle {

/// An axis of a mesh: its name, of at most 15 characters, in the value itself, so that it can be sent to other ranks.
class MeshAxis {
 public:
  constexpr MeshAxis(std::string_view name) {  // NOLINT(google-explicit-constructor): an axis is its name
    if (name.size() >= characters_.size()) {
      throw std::length_error("the name of a mesh axis has at most 15 characters");
    }
    std::copy(name.begin(), name.end(), characters_.begin());
  }
  constexpr std::string_view name() const { return characters_.data(); }
  constexpr auto operator<=>(MeshAxis const&) const = default;

  /// The axes of Heddle's layers and of [parallel].
  static MeshAxis const pipeline, data, context, tensor;
  /// The axes of a mesh whose encoder and decoder have grids of their own, see Grid.
  static MeshAxis const encoder_tensor, decoder_tensor;

 private:
  std::array<char, 16> characters_{};
};
inline constexpr MeshAxis MeshAxis::pipeline{"pipeline"};
inline constexpr MeshAxis MeshAxis::data{"data"};
inline constexpr MeshAxis MeshAxis::context{"context"};
inline constexpr MeshAxis MeshAxis::tensor{"tensor"};
inline constexpr MeshAxis MeshAxis::encoder_tensor{"encoder_tensor"};
inline constexpr MeshAxis MeshAxis::decoder_tensor{"decoder_tensor"};
/// Heddle's axes, the outermost first. Tensor neighbours have consecutive ranks, so they are on one node. A mesh may
/// have others, which may split parameters.
inline constexpr std::array known_axes{MeshAxis::pipeline, MeshAxis::data, MeshAxis::context, MeshAxis::tensor};

using MeshAxes = std::vector<MeshAxis>;

/// The axes that never split a parameter: their ranks sum gradients, and may divide the state of the optimizer.
MeshAxes const& replica_axes();

/// The way in which a stack uses the ranks of context × tensor: `decoder` is the grid of the last stack, `encoder` that
/// of the stacks before it. Where the two differ, the axis encoder_tensor splits the encoder's heads and columns and
/// the decoder's sequences, decoder_tensor the decoder's heads and columns and the encoder's sequences; context splits
/// the sequences of both, tensor the heads and columns of both. So the sizes of the two need not divide each other.
enum class Grid { encoder, decoder };

/// The sizes of a mesh's axes, the outermost first. Ranks are numbered with the last axis fastest. A value.
class MeshShape {
 public:
  struct Axis {
    MeshAxis axis;
    int size = 1;
    auto operator<=>(Axis const&) const = default;
  };

  /// One rank, with Heddle's axes.
  MeshShape();
  MeshShape(int pipeline, int data, int context, int tensor);
  explicit MeshShape(std::vector<Axis> axes) : axes_(std::move(axes)) {}

  std::vector<Axis> const& axes() const { return axes_; }
  /// This shape, of Heddle's axes, where `ranks` of its context × tensor, whose product they divide, split the
  /// encoder's heads and columns, and the others its sequences. The same shape where that is the number for tensor.
  MeshShape with_encoder_tensor(int ranks) const;
  bool has_grids() const;
  /// The axes whose ranks divide the sequences of a grid's stacks, and those that split their heads and columns; the
  /// outermost first. A mesh without grids lacks some of them.
  static MeshAxes context_axes(Grid grid);
  static MeshAxes tensor_axes(Grid grid);

  /// All axes except `axis`: a group along them has the ranks that share a coordinate along `axis`.
  MeshAxes axes_except(MeshAxis axis) const;
  /// The axes whose ranks may hold different parts of a stage's parameters, the innermost first: all but pipeline and
  /// replica_axes.
  MeshAxes model_axes() const;
  /// 1 for an axis that the shape does not have.
  int size(MeshAxis axis) const;
  int size(MeshAxes const& axes) const;
  /// The product of all sizes, at most the largest int.
  int ranks() const;
  /// The shape with another size of an axis. Throws Error if it has no such axis.
  MeshShape with(MeshAxis axis, int size) const;

  /// The place of a rank along an axis; 0 for an axis that the shape does not have.
  int coordinate(MeshAxis axis, int rank) const;
  /// The place of a rank in its group: the ranks that differ from it only along `axes`, in ascending order.
  int place(MeshAxes const& axes, int rank) const;
  /// The rank at a place in the group of `rank` along `axes`.
  int rank_at(MeshAxes const& axes, int place, int rank) const;

  /// "pipeline 2 × data 1 × context 1 × tensor 4"; with two grids "… (encoder: context 4 × tensor 1)".
  std::string to_string() const;
  auto operator<=>(MeshShape const&) const = default;

 private:
  std::vector<Axis> axes_;
};

/// A group of ranks that differ only along some axes.
struct MeshGroup {
  /// "tensor", "pipeline × tensor", or "replicas" for replica_axes. Where stacks have grids of their own, those of the
  /// encoder's are "encoder_tensor" and "encoder_context".
  std::string name;
  int first = 0;  ///< the group's first rank, which no other group of these axes has
  int place = 0;  ///< this rank's place in it
  int size = 1;
};

/// A shape and one rank's place in it. A value that is passed in.
class Mesh {
 public:
  Mesh() = default;
  /// Throws ConfigError where the product of the sizes is not `ranks`.
  Mesh(MeshShape shape, int rank, int ranks);

  MeshShape const& shape() const { return shape_; }
  int size(MeshAxis axis) const { return shape_.size(axis); }
  int coordinate(MeshAxis axis) const { return shape_.coordinate(axis, rank_); }
  int rank() const { return rank_; }
  MeshGroup group(MeshAxes const& axes) const;
  /// The replicas (replica_axes) are cut into runs of `ranks` neighbours, which divide their number: this rank's run,
  /// and the ranks that have its place in the runs.
  MeshGroup replica_run(int ranks, std::string name) const;
  MeshGroup across_replica_runs(int ranks, std::string name) const;
  std::string to_string() const { return shape_.to_string(); }

 private:
  static void name_in_grids(MeshGroup& group, MeshAxes const& axes);

  MeshShape shape_;
  int rank_ = 0;
};

/// The divisors of a positive number, ascending.
std::vector<int> divisors_of(int number);

/// Every shape of Heddle's axes with that number of ranks; data takes the ranks that the other axes leave.
std::vector<MeshShape> shapes_of(int ranks);

/// The shapes of `ranks` ranks for which `works` is true, at most `count` of them, nearest to `wanted` first: fewest
/// axes changed, then the smallest factors between old and new sizes, then changes of data rather than of other axes.
/// A wanted size of 0 is open: any size there is no change. Empty if no shape works.
std::vector<MeshShape> nearest_shapes(MeshShape const& wanted, int ranks,
                                      std::function<bool(MeshShape const&)> const& works, std::size_t count = 3);

/// The shapes in the form of an error message: "parallel.pipeline = 2, data = 1, context = 1, tensor = 2; or
/// parallel.…".
std::string list_shapes(std::span<MeshShape const> shapes);

}  // namespace heddle
