#include <heddle/core/operations/registry.hpp>
#include <heddle/core/tensor/execution.hpp>
#include <heddle/dist/optimizer/gradient_reducer.hpp>
#include <heddle/kernels/register.hpp>

#include "dist_fixture.hpp"

// Layers on another mesh than their stack's, over the same ranks: experts, and a stack with a mesh of its own. Numbers
// are small integers, so that sums are exact in any order.
namespace heddle {
namespace {

using testing::ElementsAreArray;

constexpr MeshAxis expert{"expert"};

/// A matrix in host memory.
class Matrix {
 public:
  Matrix(std::int64_t rows, std::int64_t columns, std::int64_t seed = -1, std::int64_t first_row = 0)
      : columns_(columns), elements_(static_cast<std::size_t>(rows * columns)) {
    for (std::int64_t index = 0; seed >= 0 && index < rows * columns; ++index) {
      std::int64_t const global = first_row * columns + index;
      elements_[static_cast<std::size_t>(index)] = static_cast<float>((global * 7 + global / 3 + seed) % 5 - 2);
    }
  }
  explicit Matrix(Tensor const& tensor) : columns_(tensor.dim(1)), elements_(to_host<float>(tensor)) {}

  std::int64_t rows() const { return std::ssize(elements_) / columns_; }
  std::int64_t columns() const { return columns_; }
  float& at(std::int64_t row, std::int64_t column) {
    return elements_[static_cast<std::size_t>(row * columns_ + column)];
  }
  float at(std::int64_t row, std::int64_t column) const {
    return elements_[static_cast<std::size_t>(row * columns_ + column)];
  }
  std::vector<float> const& elements() const { return elements_; }
  Tensor tensor() const { return from_host(std::span<float const>(elements_), {rows(), columns_}); }

 private:
  std::int64_t columns_;
  std::vector<float> elements_;
};

/// x · w.
Matrix product(Matrix const& x, Matrix const& w) {
  Matrix result(x.rows(), w.columns());
  for (std::int64_t row = 0; row < x.rows(); ++row) {
    for (std::int64_t column = 0; column < w.columns(); ++column) {
      for (std::int64_t inner = 0; inner < x.columns(); ++inner) {
        result.at(row, column) += x.at(row, inner) * w.at(inner, column);
      }
    }
  }
  return result;
}

Matrix transposed(Matrix const& matrix) {
  Matrix result(matrix.columns(), matrix.rows());
  for (std::int64_t row = 0; row < matrix.rows(); ++row) {
    for (std::int64_t column = 0; column < matrix.columns(); ++column) {
      result.at(column, row) = matrix.at(row, column);
    }
  }
  return result;
}

/// The parameters of a stand-in, and the sum of their gradients over the replicas of its mesh.
class Weights {
 public:
  Weights(ParallelState const& parallel, ParameterSpec spec) : parallel_(parallel), set_(parallel.mesh) {
    weight_ = &set_.declare(std::move(spec));
    set_.allocate(DType::float32);
  }
  Parameter& weight() { return *weight_; }
  /// The gradient's sum, of this rank's shard.
  std::vector<float> reduced() {
    KernelRegistries registries;
    register_built_in_kernels(registries);
    Arena scratch;
    Execution execution{Kokkos::DefaultExecutionSpace(), scratch};
    GradientReducer reducer(parallel_, set_, registries.of<TensorOps>().select("auto", {DType::float32}), execution,
                            {});
    Tensor const loss_sums = Tensor::allocate(DType::float64, {1});
    reducer.reduce(loss_sums);
    return to_host<float>(weight_->gradient);
  }

 private:
  ParallelState parallel_;
  ParameterSet set_;
  Parameter* weight_;
};

class ViewsTest : public DistTest {
 protected:
  int ranks() const { return world_.size(); }
};

/// Four experts, two on each rank of an expert group; each token is sent to the rank of its expert and comes back.
class Experts {
 public:
  static constexpr std::int64_t experts = 4, tokens = 5, width = 3;

  explicit Experts(ParallelState const& parallel)
      : parallel_(parallel),
        group_(parallel.group({expert})),
        weights_(parallel, {"experts", {experts * width, width}, Initializer::zeros(), {0, expert}}) {
    Matrix const all(experts * width, width, 3);
    std::int64_t const held = experts / group_.size();
    first_ = held * group_.rank();
    std::vector<float> const mine(all.elements().begin() + first_ * width * width,
                                  all.elements().begin() + (first_ + held) * width * width);
    copy_from_host(weights_.weight().value, mine.data());
  }

  static std::int64_t expert_of(std::int64_t token) { return token * 7 % experts; }
  static Matrix weight_of(std::int64_t number) { return Matrix(width, width, 3, number * width); }

  /// The outputs of this rank's tokens, in the order of their experts; the gradients of the experts' weights +=.
  Matrix run(Matrix const& x, Matrix const& grad_output) {
    std::vector<std::int64_t> const sent = rows_between(parallel_.mesh.rank(), -1);
    std::vector<std::int64_t> received;
    for (int source = 0; source < group_.size(); ++source) {
      received.push_back(rows_between(world_rank(source), group_.rank()).front());
    }
    std::int64_t const count = std::accumulate(received.begin(), received.end(), std::int64_t{0});
    auto const exchanged = [&](Matrix const& rows) {
      Tensor const arrived = Tensor::allocate(DType::float32, {count, width});
      group_.all_to_all_rows(rows.tensor(), sent, arrived, received);
      return Matrix(arrived);
    };
    Matrix const inputs = exchanged(x);
    Matrix const gradients = exchanged(grad_output);
    Matrix outputs(count, width);
    std::vector<float> grad_weights(static_cast<std::size_t>(experts / group_.size() * width * width));
    std::int64_t row = 0;
    for (int source = 0; source < group_.size(); ++source) {
      for (std::int64_t const token : tokens_of(world_rank(source), group_.rank())) {
        std::int64_t const number = expert_of(token);
        Matrix const weight = weight_of(number);
        for (std::int64_t in = 0; in < width; ++in) {
          for (std::int64_t out = 0; out < width; ++out) {
            outputs.at(row, out) += inputs.at(row, in) * weight.at(in, out);
            grad_weights[static_cast<std::size_t>(((number - first_) * width + in) * width + out)] +=
                inputs.at(row, in) * gradients.at(row, out);
          }
        }
        ++row;
      }
    }
    copy_from_host(weights_.weight().gradient, grad_weights.data());
    Tensor const back = Tensor::allocate(DType::float32, {tokens, width});
    group_.all_to_all_rows(outputs.tensor(), received, back, sent);
    return Matrix(back);
  }

  /// The tokens of a rank of the world whose experts are on rank `holder` of the expert group, -1: all, holder after
  /// holder.
  std::vector<std::int64_t> tokens_of(int rank, int holder) const {
    std::vector<std::int64_t> found;
    for (int each = 0; each < group_.size(); ++each) {
      for (std::int64_t token = rank * tokens; token < (rank + 1) * tokens; ++token) {
        if ((holder < 0 || holder == each) && expert_of(token) / (experts / group_.size()) == each) {
          found.push_back(token);
        }
      }
    }
    return found;
  }
  std::int64_t first() const { return first_; }
  std::vector<float> reduced() { return weights_.reduced(); }

 private:
  int world_rank(int place) const { return parallel_.mesh.shape().rank_at({expert}, place, parallel_.mesh.rank()); }
  std::vector<std::int64_t> rows_between(int rank, int holder) const {
    std::vector<std::int64_t> rows;
    for (int each = 0; each < group_.size(); ++each) {
      if (holder < 0 || holder == each) {
        rows.push_back(std::ssize(tokens_of(rank, each)));
      }
    }
    return rows;
  }

  ParallelState parallel_;
  Communicator group_;
  std::int64_t first_ = 0;  ///< of this rank's experts
  Weights weights_;
};

TEST_F(ViewsTest, ExpertsDivideTheDataAxis) {
  MeshShape const shape(1, ranks(), 1, 1);
  ParallelState const view = state_of(shape).view(shape.divided(MeshAxis::data, expert, 2));
  EXPECT_EQ(view.replicas.size(), ranks() / 2);
  EXPECT_EQ(view.group({MeshAxis::data, expert}).size(), ranks());
  Experts layer(view);
  auto const rows_of = [](std::vector<std::int64_t> const& tokens, std::int64_t seed) {
    Matrix rows(std::ssize(tokens), Experts::width);
    for (std::int64_t row = 0; row < rows.rows(); ++row) {
      Matrix const one(1, Experts::width, seed, tokens[static_cast<std::size_t>(row)]);
      std::copy(one.elements().begin(), one.elements().end(), &rows.at(row, 0));
    }
    return rows;
  };
  std::vector<std::int64_t> const own = layer.tokens_of(world_.rank(), -1);
  Matrix const outputs = layer.run(rows_of(own, 1), rows_of(own, 2));
  for (std::int64_t row = 0; row < outputs.rows(); ++row) {
    std::int64_t const token = own[static_cast<std::size_t>(row)];
    Matrix const expected = product(rows_of({token}, 1), Experts::weight_of(Experts::expert_of(token)));
    for (std::int64_t column = 0; column < Experts::width; ++column) {
      EXPECT_EQ(outputs.at(row, column), expected.at(0, column)) << "token " << token;
    }
  }
  std::vector<float> expected;
  for (std::int64_t number = layer.first(); number < layer.first() + Experts::experts / 2; ++number) {
    std::vector<std::int64_t> routed;
    for (std::int64_t token = 0; token < ranks() * Experts::tokens; ++token) {
      if (Experts::expert_of(token) == number) {
        routed.push_back(token);
      }
    }
    Matrix const gradient = product(transposed(rows_of(routed, 1)), rows_of(routed, 2));
    expected.insert(expected.end(), gradient.elements().begin(), gradient.elements().end());
  }
  EXPECT_THAT(layer.reduced(), ElementsAreArray(expected));
}

TEST_F(ViewsTest, AStackHasAMeshOfItsOwn) {
  constexpr std::int64_t rows = 3, width = 4;
  // The first stack has a data rank where the second one has a tensor rank, whose rows are those of both.
  ParallelState const first = state_of({1, ranks(), 1, 1});
  ParallelState const second = first.view({1, ranks() / 2, 1, 2});
  Weights first_weights(first, {"first", {width, width}, Initializer::zeros(), {}});
  Weights second_weights(second, {"second", {width, width}, Initializer::zeros(), {0}});
  Matrix const first_weight(width, width, 1);
  Matrix const second_weight(width, width, 2);  // [outputs, inputs]
  int const half = second.tensor.rank();
  Matrix const own_weight(width / 2, width, 2, half * width / 2);

  Matrix const x(rows, width, 3, world_.rank() * rows);
  Tensor const gathered = Tensor::allocate(DType::float32, {2 * rows, width});
  second.tensor.all_gather(product(x, first_weight).tensor(), gathered);
  Matrix const hidden(gathered);
  Matrix grad_output(2 * rows, width / 2);
  Matrix const grad_all(2 * rows, width, 4, second.data.rank() * 2 * rows);
  for (std::int64_t row = 0; row < 2 * rows; ++row) {
    for (std::int64_t column = 0; column < width / 2; ++column) {
      grad_output.at(row, column) = grad_all.at(row, half * width / 2 + column);
    }
  }
  Matrix const grad_second = product(transposed(grad_output), hidden);
  copy_from_host(second_weights.weight().gradient, grad_second.elements().data());
  Tensor const grad_hidden = Tensor::allocate(DType::float32, {rows, width});
  std::vector<std::int64_t> const halves{rows, rows};
  second.tensor.reduce_scatter_rows(product(grad_output, own_weight).tensor(), grad_hidden, halves);
  Matrix const grad_first = product(transposed(x), Matrix(grad_hidden));
  copy_from_host(first_weights.weight().gradient, grad_first.elements().data());

  Matrix const all_x(ranks() * rows, width, 3);
  Matrix const all_grad(ranks() * rows, width, 4);
  Matrix const expected_second = product(transposed(all_grad), product(all_x, first_weight));
  auto const begin = expected_second.elements().begin() + half * width / 2 * width;
  EXPECT_THAT(second_weights.reduced(), ElementsAreArray(begin, begin + width / 2 * width));
  EXPECT_THAT(first_weights.reduced(),
              ElementsAreArray(product(transposed(all_x), product(all_grad, second_weight)).elements()));
}

}  // namespace
}  // namespace heddle
