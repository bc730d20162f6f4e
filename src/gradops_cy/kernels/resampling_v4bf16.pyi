from gradops_cy.kernels.resampling_generic import *
