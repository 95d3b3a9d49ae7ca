"""Elements of programs in a normal form, under assumptions on the inputs: sums of products of atoms, by cases."""
